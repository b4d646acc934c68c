"""A regular expression that would search for years: in a suite, in a task file, in a run on disk, for a server's readiness."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, Said
from tests.processes import end_of, started, until

from .written import journal

FOREVER = r"(a+)+$"
LINES = "ok 1\n" + 35 * "a" + "b\nok 2\n"
SENTENCE = (
    "metric bad: '(a+)+$' took more than 1 s on line 2 of stdout. Write it without a repetition within or next to"
)
# Each of these lines takes a good part of a second, and all of them many: whoever waits for a match is in the midst of one.
SLOW_LINES = 12 * (24 * "a" + "b\n") + "ok 3\n"


def suite(folder: Path, text: str = LINES, pattern: str = FOREVER) -> tuple[str, ...]:
    """A suite of a command that prints a text, of which one metric is searched for with this pattern."""
    (folder / "train.log").write_text(text)
    bench = {
        "install_group": "lines",
        "command": ["cat", str(folder / "train.log")],
        "max_duration": 60,
        "plan": {"method": "njobs", "n": 1},
        "weight": 1.0,
        "metrics": {"bad": {"pattern": pattern}, "good": {"pattern": r"ok (\d+)", "direction": "higher"}},
    }
    (folder / "suite.yaml").write_text(json.dumps({"profile": "quick", "slow": bench}))
    return ("--use-current-env", "--config", str(folder / "suite.yaml"))


def recorded(milabench: Callable[..., Said], environ: Mapping[str, str], folder: Path, text: str) -> Path:
    """A run whose pattern was another one when it was made, as one that an earlier version has made."""
    said = milabench("run", *suite(folder, text, "(ok)"))
    assert said.code == 1, said.err  # it holds no number
    run = only_run(environ)
    for file in ("slow.0.data", "manifest.json"):
        (run / file).write_text((run / file).read_text().replace('"(ok)"', json.dumps(FOREVER)))
    entries = (run / "journal.jsonl").read_text()
    (run / "journal.jsonl").write_text(entries.replace('"outcome":"failed"', '"outcome":"passed"'))
    (run / "summary.json").unlink()
    return run


def only_run(environ: Mapping[str, str]) -> Path:
    (run,) = Path(environ["MILABENCH_BASE"], "runs").iterdir()
    return run


def ends(run: Path) -> dict[str, dict[str, Any]]:
    """How each step ended."""
    return {entry["step"]: entry for entry in journal(run) if entry.get("state") == "ended"}


def test_a_step_whose_log_is_searched_for_too_long_fails_by_pattern_and_line(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    said = milabench("run", *suite(tmp_path))
    assert said.code == 1
    assert f"failed: no-data: {SENTENCE}" in said.err
    assert SENTENCE in " ".join(milabench("report").out.split())


def test_a_report_on_a_run_says_so_of_the_one_metric_and_goes_on(
    milabench: Callable[..., Said], environ: Mapping[str, str], tmp_path: Path
) -> None:
    recorded(milabench, environ, tmp_path, LINES)
    said = milabench("report")
    assert said.code == 0, said.err
    assert SENTENCE in said.out
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert {one["metric"]: one["value"] for one in bench["metrics"]}["good"] == 2.0
    assert "bad" not in {one["metric"] for one in bench["metrics"]}


def task_file(folder: Path) -> tuple[str, ...]:
    """A task that prints `train.log`."""
    (folder / "tasks.cfg").write_text(
        f"[t]\npatterns = [{FOREVER!r}]\nmetrics = ['bad']\ncompute_method = ['last']\n"
        f"command_to_execute = cat {folder / 'train.log'}\nnum_gpus = 0\n"
    )
    return ("driver", "--display", "plain", "--config", str(folder / "tasks.cfg"), "--task-name", "t")


def test_a_task_whose_log_is_searched_for_too_long_fails_by_pattern_and_line(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    (tmp_path / "train.log").write_text(LINES)
    said = milabench(*task_file(tmp_path), cwd=tmp_path)
    assert said.code == 1
    assert f"error: t.0: no-data: {SENTENCE}" in said.err


def test_a_server_whose_output_is_searched_for_too_long_fails_by_pattern_and_line(
    milabench: Callable[..., Said], environ: Mapping[str, str], tmp_path: Path
) -> None:
    bench = {
        "install_group": "lines",
        "command": [sys.executable, "-c", f"import time; print({LINES!r}, flush=True); time.sleep(600)"],
        "max_duration": 120,
        "plan": {"method": "multigpu"},
        "weight": 1.0,
        "server": {"ready": FOREVER},
        "client": {"argv": []},
    }
    (tmp_path / "suite.yaml").write_text(json.dumps({"profile": "quick", "served": bench}))
    said = milabench("run", "--use-current-env", "--config", str(tmp_path / "suite.yaml"))
    assert said.code == 1, said.err
    server, client = (ends(only_run(environ))[f"served.{role}"] for role in ("server", "client"))
    assert (server["outcome"], server["why"]) == ("failed", "timeout")
    assert "the pattern '(a+)+$' took more than 1 s on the output up to line " in server["detail"]
    assert client["outcome"] == "skipped"


def is_searching(pid: int) -> bool:
    """Whether a process has begun to search: it handles the signal of the search's clock."""
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGVTALRM - 1) & 1)


def running(
    argv: Sequence[str], environ: Mapping[str, str], cwd: Path = ROOT
) -> contextlib.AbstractContextManager[subprocess.Popen[Any]]:
    """A command while it runs."""
    command = [sys.executable, "-m", "milabench", *argv]
    return started(command, env=environ, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def interrupted(argv: Sequence[str], environ: Mapping[str, str], cwd: Path, number: int) -> Said:
    """What a command answers that gets a signal while it searches."""
    with running(argv, environ, cwd) as process:
        until(lambda: is_searching(process.pid), "a search")
        process.send_signal(number)
        code = end_of(process)
        return Said(code, process.stdout.read(), process.stderr.read())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_report_in_the_midst_of_a_match(
    milabench: Callable[..., Said], environ: Mapping[str, str], tmp_path: Path, number: int
) -> None:
    recorded(milabench, environ, tmp_path, SLOW_LINES)
    said = interrupted(["report"], environ, ROOT, number)
    assert (said.code, said.out, said.err.strip()) == (130, "", "interrupted")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=[pytest.mark.e2e, pytest.mark.long])]
)
def test_a_signal_ends_a_run_in_the_midst_of_a_match(environ: Mapping[str, str], tmp_path: Path, number: int) -> None:
    said = interrupted(["run", *suite(tmp_path, SLOW_LINES)], environ, ROOT, number)
    assert said.code == 130, said.err
    assert "Traceback" not in said.err
    assert ends(only_run(environ))["slow.0"]["outcome"] == "cancelled"


@pytest.mark.e2e
@pytest.mark.long
def test_a_signal_ends_the_decision_whether_to_measure_on_in_the_midst_of_a_match(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    def journals() -> list[Path]:
        return list(Path(environ["MILABENCH_BASE"]).glob("runs/*/journal.jsonl"))

    command = ["run", *suite(tmp_path, 2 * (22 * "a" + "b\n") + "ok 3\n", r"(?:a+)+$|ok (\d+)"), "--precision", "1%"]
    with running(command, environ) as process:
        until(
            lambda: [1 for file in journals() if file.read_text().count('"state":"ended"') == 3],
            "the end of the first block",
        )
        process.send_signal(signal.SIGTERM)
        assert end_of(process) == 130
    run = only_run(environ)
    assert "replicates" not in json.loads((run / "manifest.json").read_text())
    assert journal(run)[-1]["verdict"] == "interrupted"


@pytest.mark.e2e
@pytest.mark.long
def test_a_signal_ends_a_task_in_the_midst_of_a_match(environ: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(SLOW_LINES)
    said = interrupted(task_file(tmp_path), environ, tmp_path, signal.SIGTERM)
    assert said.code == 130, said.err
    assert ends(only_run(environ))["t.0"]["outcome"] == "cancelled"


IN_A_NOTEBOOK = """
import asyncio, sys
import milabench

async def cell():  # an event loop runs here, so the run is in a thread
    result = milabench.run(sys.argv[1], base=sys.argv[2], use_current_env=True)
    print(*(failure.detail for bench in result.summary.benchmarks for failure in bench.failures))
    await asyncio.to_thread(lambda: print(milabench.load(result.path)))

asyncio.run(cell())
"""


def test_in_a_thread_of_a_notebook_a_search_has_the_same_limit(environ: Mapping[str, str], tmp_path: Path) -> None:
    *_, file = suite(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NOTEBOOK, file, str(tmp_path / "base")],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(SENTENCE)
    assert " ".join(done.stdout.split()).count(SENTENCE) == 2
