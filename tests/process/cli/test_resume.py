"""`milabench resume` goes on with a run in its own directory, or says why it does not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import PYTHON, ROOT, Said
from tests.processes import CEILING_S, until

from .conftest import HERE as ODD
from .test_run import marked
from .written import ends, journal, once, runs, suite


def start(environ: dict[str, str], *argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "milabench", *argv],
        env=environ,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def cut_off(environ: dict[str, str], folder: Path, number: int = signal.SIGKILL) -> tuple[str, ...]:
    """A run in which `before` has passed when its orchestrator is killed, in the middle of `during`."""
    line = f"test -e {folder}/go || {{ touch {folder}/up; sleep 3600; }}; echo here"
    here = suite(folder, before="echo fine", during=line, after="echo fine")
    # This seed's order is before, during, after.
    process = start(environ, "run", *here, "--seed", "1")
    until(lambda: (folder / "up").exists() or process.poll() is not None, "the step in which it is cut off")
    assert process.poll() is None
    process.send_signal(number)
    process.wait(CEILING_S)
    (folder / "go").touch()
    return here


def outcomes(milabench: Callable[..., Said]) -> dict[str, str]:
    said = milabench("report", "--json")
    assert said.code == 0, said.err
    return {each["bench"]: each["outcome"] for each in json.loads(said.out)["benchmarks"]}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_only_what_had_not_passed_is_run_and_in_the_same_directory(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, number: int
) -> None:
    cut_off(environ, tmp_path, number)
    (run,) = runs(environ["MILABENCH_BASE"])
    before = [step for step, _, outcome in ends(run) if outcome == "passed"]
    assert before == ["before.0"]
    said = milabench("resume")
    assert said.code == 0, said.err
    assert runs(environ["MILABENCH_BASE"]) == [run]
    assert set(outcomes(milabench).values()) == {"passed"}
    after = [step for step, _, outcome in ends(run) if outcome == "passed"]
    assert after[: len(before)] == before
    assert len(after) == 3
    assert marked(environ["MILABENCH_BASE"]) == []


def test_resume_of_a_finished_run_says_so(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("run", *suite(tmp_path, a="echo fine")).code == 0
    (run,) = runs(environ["MILABENCH_BASE"])
    before = (run / "journal.jsonl").read_bytes()
    said = milabench("resume", str(run))
    assert said.code == 0
    assert "is finished: its step has passed" in said.err
    assert (run / "journal.jsonl").read_bytes() == before


def test_resume_of_a_run_that_was_interrupted_after_its_last_step_says_that_it_passed(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("run", *suite(tmp_path, a="echo fine")).code == 0
    (run,) = runs(environ["MILABENCH_BASE"])
    journal = run / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"verdict":"passed"', '"verdict":"interrupted"'))
    assert milabench("resume", str(run)).code == 0
    assert json.loads(journal.read_text().splitlines()[-1])["verdict"] == "passed"
    assert json.loads((run / "summary.json").read_text())["verdict"] == "passed"


def test_what_failed_is_run_again(milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path) -> None:
    here = suite(tmp_path, shaky=once(tmp_path, "seen"), sound="echo fine")
    assert milabench("run", *here, "--repeat", "2").code == 1
    assert milabench("resume").code == 0
    (run,) = runs(environ["MILABENCH_BASE"])
    assert len([1 for step, _, _ in ends(run) if step.startswith("sound")]) == 2
    assert outcomes(milabench) == {"shaky": "passed", "sound": "passed"}


def test_a_suite_that_changed_is_refused_with_what_differs_and_forced_is_mixed(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    measured = "import benchmate, time\\nfor _ in benchmate.observed(range(40), units='items/s', batch_size=2): time.sleep(0.002)"
    program = tmp_path / "program.py"
    program.write_text(measured.replace("\\n", "\n"))
    lines = {"rate": f"{PYTHON} {program}", "shaky": once(tmp_path, "seen")}
    assert milabench("run", *suite(tmp_path, **lines)).code == 1
    suite(tmp_path, **{**lines, "shaky": "echo another line"})
    said = milabench("resume")
    assert said.code == 6
    assert "shaky.0" in said.err
    assert "echo another line" in said.err
    assert "devices" not in said.err
    assert "--force" in said.err
    assert milabench("resume", "--force").code == 0
    (rate,) = [each for each in json.loads(milabench("report", "--json").out)["benchmarks"] if each["bench"] == "rate"]
    assert (rate["validity"], "mixed" in rate["reasons"]) == ("suspect", True)


def test_a_machine_that_is_another_is_refused(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("run", *suite(tmp_path, shaky=once(tmp_path, "seen"))).code == 1
    (run,) = runs(environ["MILABENCH_BASE"])
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["system"]["nodes"][0]["cpu"]["model"] = "Z80"
    manifest["locks"] = dict.fromkeys(manifest["locks"], "0")
    (run / "manifest.json").write_text(json.dumps(manifest))
    said = milabench("resume")
    assert said.code == 6
    assert "system.local.cpu.model: Z80 ->" in said.err
    assert f"environment {sys.prefix}: changed" in said.err


def test_a_run_whose_orchestrator_lives_is_refused_with_who_that_is(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, long=f"touch {tmp_path}/up; sleep 3600")
    process = start(environ, "run", *here)
    try:
        until((tmp_path / "up").exists, "the step")
        said = milabench("resume")
        assert said.code == 5
        assert "is still active" in said.err
        assert f"(pid {process.pid})" in said.err
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(CEILING_S) == 130


def test_an_agent_that_hangs_is_swept_with_its_steps(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    line = f"test -e {tmp_path}/go || {{ touch {tmp_path}/up; sleep 3600; }}; echo here"
    process = start(environ, "run", *suite(tmp_path, long=line))
    until((tmp_path / "up").exists, "the step")
    agent = until(lambda: agent_of(environ), "one process of the agent")
    os.kill(agent, signal.SIGSTOP)
    process.kill()
    process.wait(CEILING_S)
    (tmp_path / "go").touch()
    said = milabench("resume")
    assert said.code == 0, said.err
    assert "of its processes killed" in said.err
    assert carrying(environ) == []


def agent_of(environ: dict[str, str]) -> int | None:
    """The agent; None at a moment in which a child that it forked has not executed its command yet."""
    agents = [pid for pid in carrying(environ) if b"execute/agent/" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return agents[0] if len(agents) == 1 else None


def carrying(environ: dict[str, str]) -> list[int]:
    """The processes that know the base of this test and carry the marker of a run."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        base = f"MILABENCH_BASE={environ['MILABENCH_BASE']}".encode()
        if base in variables and any(each.startswith(b"MILABENCH_RUN_MARKER=") for each in variables):
            found.append(int(folder.name))
    return found


def test_a_step_that_left_only_a_file_is_tried_under_a_new_name(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("run", *suite(tmp_path, a="echo fine")).code == 0
    (run,) = runs(environ["MILABENCH_BASE"])
    lines = [line for line in (run / "journal.jsonl").read_text().splitlines(keepends=True) if '"planned"' in line]
    (run / "journal.jsonl").write_text("".join(lines))
    records = (run / "a.0.data").read_bytes()
    assert milabench("resume").code == 0
    assert (run / "a.0.data").read_bytes() == records
    assert ends(run) == [("a.0", 2, "passed")]


@pytest.mark.parametrize(
    ("made", "code", "said"),
    [
        ({}, 6, "is no run directory"),
        ({"manifest.json": '{"schema": 2}'}, 6, "has schema 2"),
        ({"manifest.json": '{"schema": 1, "phase": "run", "files": {"a": "a"}}'}, 6, "cannot resume"),
        ({"manifest.json": '{"schema": 1, "phase": "prepare"}'}, 2, "`milabench prepare` continues it"),
        ({"a.data": ""}, 6, "the manifest is missing"),
    ],
)
def test_what_is_no_run_to_go_on_with(
    milabench: Callable[..., Said], tmp_path: Path, made: dict[str, str], code: int, said: str
) -> None:
    folder = tmp_path / "thing"
    folder.mkdir()
    for name, content in made.items():
        (folder / name).write_text(content)
    answer = milabench("resume", str(folder))
    assert (answer.code, said in answer.err) == (code, True), answer.err


def test_nothing_to_resume(milabench: Callable[..., Said]) -> None:
    said = milabench("resume")
    assert said.code == 3
    assert "milabench run" in said.err


def test_files_of_another_run_and_records_out_of_order_are_no_obstacle(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("run", *suite(tmp_path, shaky=once(tmp_path, "seen"), a="echo fine")).code == 1
    (run,) = runs(environ["MILABENCH_BASE"])
    (run / "stranger.D0.data").write_text('{"event":"data","data":{"rate":1},"pipe":"data"}\n')
    lines = (run / "a.0.data").read_text().splitlines(keepends=True)
    (run / "a.0.data").write_text("".join(reversed(lines)))
    assert milabench("resume").code == 0
    assert outcomes(milabench) == {"shaky": "passed", "a": "passed"}


def test_the_journal_names_every_orchestrator_and_its_marker(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("run", *suite(tmp_path, shaky=once(tmp_path, "seen"))).code == 1
    assert milabench("resume").code == 0
    (run,) = runs(environ["MILABENCH_BASE"])
    began = [each for each in journal(run) if each.get("run") == "started"]
    assert len({each["marker"] for each in began}) == 2
    # A marker has the name and the time at which the command began: the folder is made later, maybe in the next second.
    name = run.name.partition(".")[0]
    assert all(re.match(rf"{name}\.[0-9_-]+-[0-9a-f]{{8}}$", each["marker"]) for each in began)
    assert all(isinstance(each[key], int) for each in began for key in ("pid", "pid_start"))


def test_a_prepare_that_was_killed_goes_on_with_what_is_left(
    milabench: Callable[..., Said], environ: dict[str, str]
) -> None:
    """The steps that had ended are not prepared again: their program says how often it ran."""
    here = (*ODD, "--select", "good or long or hang")
    process = start(environ, "prepare", *here)
    data = Path(environ["MILABENCH_BASE"], "data")
    until(lambda: any(data.glob("*/prepared")) or process.poll() is not None, "the first prepared benchmark")
    process.kill()
    process.wait(CEILING_S)
    marks = {path.name.partition("-")[0] for path in data.glob(".prepared/*")}
    said = milabench("prepare", *here)
    assert said.code == 0, said.err
    times = {path.parent.name: len(path.read_text().splitlines()) for path in data.glob("*/prepared")}
    assert sorted(times) == ["good", "hang", "long"]
    assert all(times[name] == 1 for name in marks)
    assert milabench("prepare", *here).err.startswith("prepare: nothing to do")
