"""What fails may be tried again; every attempt is kept, and nothing that did not pass adds to a score."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.commands import ROOT, Said

from .written import ends, once, runs, suite


def test_a_retry_that_passes_is_marked_flaky_and_both_attempts_are_kept(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, shaky=once(tmp_path, "seen"), sound="echo fine")
    said = milabench("run", *here, "--max-retries", "2")
    assert said.code == 0, said.err
    (run,) = runs(environ["MILABENCH_BASE"])
    assert sorted(ends(run)) == [("shaky.0", 1, "failed"), ("shaky.0", 2, "passed"), ("sound.0", 1, "passed")]
    assert (run / "shaky.0.stderr").read_text() == "not yet\n"
    assert (run / "shaky.0~2.stdout").read_text() == "here\n"
    (bench,) = [
        each for each in json.loads(milabench("report", "--json").out)["benchmarks"] if each["bench"] == "shaky"
    ]
    (flaky,) = bench["flaky"]
    assert (bench["outcome"], bench["counts"]["passed"], bench["counts"]["failed"]) == ("passed", 1, 0)
    assert (flaky["attempt"], [each["outcome"] for each in flaky["others"]]) == (2, ["failed"])
    text = milabench("report").out
    assert "passed at attempt 2. Attempt 1: exit: not yet" in text
    assert str(run / "shaky.0.stderr") in text


def test_what_goes_on_failing_is_tried_as_often_as_was_said(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("run", *suite(tmp_path, never="exit 3"), "--max-retries", "2").code == 1
    (run,) = runs(environ["MILABENCH_BASE"])
    assert ends(run) == [("never.0", number, "failed") for number in (1, 2, 3)]


def test_after_so_many_failures_nothing_more_is_started(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    lines = {f"b{number}": "exit 3" for number in range(4)}
    assert milabench("run", *suite(tmp_path, **lines), "--maxfail", "2").code == 1
    (run,) = runs(environ["MILABENCH_BASE"])
    assert sorted(outcome for _, _, outcome in ends(run)) == ["cancelled", "cancelled", "failed", "failed"]
    assert "not started after 2 failures" in milabench("report").out


def test_only_what_did_not_pass_is_run_with_failed(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, shaky=once(tmp_path, "seen"), sound="echo fine", other=once(tmp_path, "too"))
    assert milabench("run", *here).code == 1
    assert milabench("run", *here, "--failed").code == 0
    first, second = runs(environ["MILABENCH_BASE"])
    assert sorted(step for step, _, _ in ends(second)) == ["other.0", "shaky.0"]
    assert milabench("run", *here, "--failed", first.name).code == 0
    said = milabench("run", *here, "--failed", second.name)
    assert said.code == 3
    assert "every step has passed" in said.err


def test_a_failed_step_comes_with_why_its_log_and_a_line_that_reruns_it_from_anywhere(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    names = {"two words": once(tmp_path, "seen"), "plain": "echo fine"}
    suite(tmp_path, **names)
    here = ("--use-current-env", "--config", "suite.yaml", "--override", "plain.max_duration=50")
    milabench("run", *here, cwd=tmp_path, PYTHONPATH=str(ROOT))
    (failures,) = [
        each["failures"] for each in json.loads(milabench("report", "--json").out)["benchmarks"] if each["failures"]
    ]
    assert (failures[0]["why"], failures[0]["detail"]) == ("exit", "not yet")
    assert Path(failures[0]["log"]).read_text() == "not yet\n"
    (line,) = [line for line in milabench("report").out.splitlines() if line.strip().startswith("rerun")]
    words = shlex.split(line.replace("rerun", "", 1))
    assert words[0] == "milabench"
    # Without the variable that named the base: the line says it itself.
    kept = {name: value for name, value in environ.items() if name != "MILABENCH_BASE"}
    done = subprocess.run(
        [sys.executable, "-m", "milabench", *words[1:]],
        env={**kept, "PYTHONPATH": str(ROOT)},
        cwd="/",
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert ends(runs(environ["MILABENCH_BASE"])[-1]) == [("two words.0", 1, "passed")]


def test_a_step_that_is_silent_too_long_is_ended(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, mute="echo last words; sleep 3600")
    assert milabench("run", *here, "--override", "mute.max_silence=1").code == 1
    assert "silent: neither output nor a record for 1 s" in milabench("report").out
