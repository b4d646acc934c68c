"""`milabench run` where data are missing: it prepares what takes seconds, and says the command for the rest."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT, Said
from tests.processes import CEILING_S, until

from .conftest import HERE

Milabench = Callable[..., Said]
QUICKLY = "import os, pathlib\nwith pathlib.Path(os.environ['COUNT']).open('a') as file:\n    file.write('once\\n')\n"


@pytest.fixture
def mine(milabench: Milabench, environ: dict[str, str], tmp_path: Path) -> tuple[str, ...]:
    """The options that name a suite of one new benchmark, which counts how often it is prepared."""
    assert milabench("new", "mine", "--into", str(tmp_path)).code == 0
    script = tmp_path / "mine" / "prepare.py"
    script.write_text(QUICKLY + script.read_text())
    environ["COUNT"] = str(tmp_path / "count")
    return ("--use-current-env", "--config", str(tmp_path / "mine" / "suite.yaml"))


def count(tmp_path: Path) -> int:
    file = tmp_path / "count"
    return len(file.read_text().splitlines()) if file.exists() else 0


def phases(environ: dict[str, str]) -> list[str]:
    """The names of what was recorded below the base, without the time."""
    folder = Path(environ["MILABENCH_BASE"], "runs")
    return sorted(run.name.partition(".")[0] for run in folder.iterdir()) if folder.exists() else []


def test_a_run_prepares_what_is_missing_once_and_says_so(
    milabench: Milabench, environ: dict[str, str], mine: tuple[str, ...], tmp_path: Path
) -> None:
    said = milabench("run", *mine)
    assert said.code == 0, said.err
    assert "run: preparing mine first, 60 s at most for each\n" in said.err
    assert milabench("prepare", *mine).err == "prepare: nothing to do, prepared: 1 benchmark\n"
    again = milabench("run", *mine)
    assert (again.code, "preparing" in again.err, count(tmp_path)) == (0, False, 1)
    assert phases(environ) == ["prepare", "run", "run"]


def test_a_changed_module_that_several_benchmarks_share_prepares_again(
    milabench: Milabench, mine: tuple[str, ...], tmp_path: Path
) -> None:
    shared = tmp_path / "_environments" / "shared"
    shared.mkdir(parents=True)
    (shared / "requirements.in").write_text("")
    benchfile = tmp_path / "mine" / "benchfile.py"
    benchfile.write_text(
        benchfile.read_text().replace("Benchmark(", "Benchmark(requirements='../_environments/shared',", 1)
    )
    script = tmp_path / "mine" / "prepare.py"
    script.write_text(f"import making\n{script.read_text()}")
    for text, times in (("", 1), ("", 1), ("# otherwise\n", 2)):
        (shared / "making.py").write_text(text)
        said = milabench("prepare", *mine)
        assert (said.code, count(tmp_path)) == (0, times), said.err


def test_without_preparing_the_command_is_said_and_nothing_is_recorded(
    milabench: Milabench, environ: dict[str, str], mine: tuple[str, ...], tmp_path: Path
) -> None:
    said = milabench("run", *mine, "--no-prepare")
    command = f"milabench prepare --config {mine[-1]} --base {environ['MILABENCH_BASE']} --use-current-env"
    assert (said.code, said.err) == (4, f"error: not prepared: mine. Run `{command}`\n")
    assert milabench("run", *mine, MILABENCH_NO_PREPARE="1").code == 4
    assert (phases(environ), count(tmp_path)) == ([], 0)


def test_a_dry_run_prepares_nothing(
    milabench: Milabench, environ: dict[str, str], mine: tuple[str, ...], tmp_path: Path
) -> None:
    assert milabench("run", *mine, "--dry-run").code == 0
    assert (phases(environ), count(tmp_path)) == ([], 0)


def test_both_suites_of_an_ab_run_are_prepared(milabench: Milabench, mine: tuple[str, ...], tmp_path: Path) -> None:
    suite = Path(mine[-1])
    other = suite.with_name("other.yaml")
    other.write_text(suite.read_text())
    said = milabench("run", "--use-current-env", "--ab", str(suite), str(other), "--repeat", "1")
    assert said.code == 0, said.err
    assert count(tmp_path) == 1  # the arguments of both are the same, and so is what is prepared


def test_what_fails_to_be_prepared_is_shown_and_no_run_begins(milabench: Milabench, environ: dict[str, str]) -> None:
    said = milabench("run", *HERE, "--select", "unprepared,good")
    assert said.code == 4
    assert "error: unprepared: prepare failed: exit: " in said.err
    assert "(whole output: " in said.err
    assert phases(environ) == ["prepare"]


def test_an_interrupt_while_preparing_ends_the_run_before_it_begins(
    environ: dict[str, str], mine: tuple[str, ...], tmp_path: Path
) -> None:
    script = tmp_path / "mine" / "prepare.py"
    script.write_text(QUICKLY + "import time\ntime.sleep(3600)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "milabench", "run", *mine], env=environ, cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    until(lambda: count(tmp_path) == 1 or process.poll() is not None, "the preparation")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=CEILING_S)
    assert process.returncode == 130
    assert err.count("interrupted\n") == 1
    assert phases(environ) == ["prepare"]


def test_two_runs_at_once_prepare_once(
    environ: dict[str, str], milabench: Milabench, mine: tuple[str, ...], tmp_path: Path
) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "milabench", "run", *mine], env=environ, cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    ends = [process.communicate(timeout=CEILING_S)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    assert count(tmp_path) == 1
