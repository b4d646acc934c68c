"""`milabench run` on programs that behave and on those that do not: outcomes, exit codes, records, nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from milabench.report.labels import format_number
from tests.commands import ROOT, Said
from tests.processes import CEILING_S, until

from .conftest import HERE
from .written import suite


def marked(base: str) -> list[int]:
    """The processes that a run below this base started, by the variables they carry."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                environ = (folder / "environ").read_bytes()
                if f"MILABENCH_DIR_DATA={base}/data".encode() in environ:
                    found.append(int(folder.name))
    return found


def report(milabench: Callable[..., Said]) -> dict[str, object]:
    said = milabench("report", "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def bench(milabench: Callable[..., Said], name: str) -> dict[str, Any]:
    (found,) = [each for each in report(milabench)["benchmarks"] if each["bench"] == name]
    return found


def test_a_benchmark_that_behaves_passes_and_is_reported_with_its_unit(prepared: Callable[..., Said]) -> None:
    said = prepared("run", *HERE, "--select", "good")
    assert said.code == 0, said.err
    found = bench(prepared, "good")
    assert (found["outcome"], found["units"], found["processes"]) == ("passed", "items/s", 1)
    assert found["perf"] > 0
    assert set(found["reasons"]) == {"short"}


def test_the_last_line_of_a_step_has_the_number_of_the_report(prepared: Callable[..., Said]) -> None:
    said = prepared("run", *HERE, "--select", "good", "--repeat", "2")
    assert said.code == 0, said.err
    rates = [metric for metric in bench(prepared, "good")["metrics"] if metric["metric"] == "rate"]
    assert [rate["steps"] for rate in rates] == [["good.D0.R0"], ["good.D0.R1"]]
    replayed = prepared("replay", "--speed", "0").err
    for rate in rates:
        line = f"{rate['steps'][0]}: passed, {format_number(rate['value'])} items/s, "
        assert line in said.err
        assert line in replayed


def test_a_name_with_a_space_is_a_name(prepared: Callable[..., Said]) -> None:
    assert prepared("run", *HERE, "--select", "'a b'").code == 0
    assert bench(prepared, "a b")["outcome"] == "passed"


def test_repeats_are_fresh_processes(prepared: Callable[..., Said]) -> None:
    assert prepared("run", *HERE, "--select", "good", "--repeat", "3").code == 0
    found = bench(prepared, "good")
    assert found["processes"] == 3
    assert found["ci95"] is not None


@pytest.mark.parametrize(
    ("name", "why", "detail"),
    [
        ("crash", "exit", "the model fell over"),
        ("hang", "timeout", "2"),
        ("nothing", "no-data", ""),
    ],
)
def test_what_did_not_pass_says_why_and_changes_the_exit_code(
    prepared: Callable[..., Said], name: str, why: str, detail: str
) -> None:
    said = prepared("run", *HERE, "--select", f"{name},good")
    assert said.code == 1, said.err
    assert bench(prepared, "good")["outcome"] == "passed"
    found = bench(prepared, name)
    assert found["outcome"] == "failed"
    assert found["perf"] is None
    (failure,) = found["failures"]
    assert failure["why"] == why
    assert detail in failure["detail"]


def test_binary_output_is_kept_and_harms_nothing(prepared: Callable[..., Said], environ: dict[str, str]) -> None:
    assert prepared("run", *HERE, "--select", "binary").code == 0
    (output,) = Path(environ["MILABENCH_BASE"], "runs").glob("run.*/binary.D0.stdout")
    assert output.stat().st_size > 0


def test_a_child_that_outlives_its_benchmark_is_ended(prepared: Callable[..., Said], environ: dict[str, str]) -> None:
    assert prepared("run", *HERE, "--select", "outlived").code == 0
    assert marked(environ["MILABENCH_BASE"]) == []


@contextlib.contextmanager
def running(environ: dict[str, str], *argv: str) -> Iterator[subprocess.Popen[str]]:
    """`milabench` while it measures `long`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "milabench", *argv],
        env=environ,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        base = environ["MILABENCH_BASE"]
        until(lambda: len(marked(base)) > 0 or process.poll() is not None, "the benchmark's process")
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


LONG = ("run", *HERE, "--select", "long", "--override", "long.voir.options.stop=100000")


def test_ctrl_c_ends_everything_and_the_report_still_works(
    prepared: Callable[..., Said], environ: dict[str, str]
) -> None:
    with running(environ, *LONG) as process:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=CEILING_S)
        assert process.returncode == 130
    assert marked(environ["MILABENCH_BASE"]) == []
    assert bench(prepared, "long")["outcome"] == "cancelled"


def test_a_killed_orchestrator_leaves_no_process_and_readable_records(
    prepared: Callable[..., Said], environ: dict[str, str]
) -> None:
    with running(environ, *LONG) as process:
        process.kill()
        process.communicate(timeout=CEILING_S)
    until(lambda: marked(environ["MILABENCH_BASE"]) == [], "the end of what the run started")
    assert bench(prepared, "long")["outcome"] == "missing"


def test_a_second_run_at_once_is_refused_and_told_who_measures(
    prepared: Callable[..., Said], environ: dict[str, str]
) -> None:
    with running(environ, *LONG):
        said = prepared("run", *HERE, "--select", "good", MILABENCH_WAIT="0")
    assert said.code == 5
    assert "is held by run" in said.err
    assert "--wait" in said.err
    assert len(list(Path(environ["MILABENCH_BASE"], "runs").glob("run.*"))) == 1


def test_the_run_of_a_quickstart_is_named_after_it(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    said = milabench("quickstart", *suite(tmp_path, fine="echo fine"))
    assert said.code == 0, said.err
    (run,) = (path.name for path in Path(environ["MILABENCH_BASE"], "runs").iterdir())
    assert run.startswith("quickstart.")


def test_a_run_has_a_name(milabench: Callable[..., Said], tmp_path: Path) -> None:
    said = milabench("run", *suite(tmp_path, fine="echo fine"), "--run-name", "")
    assert (said.code, "--run-name is empty" in said.err) == (2, True)
