"""A named pipe, or a link to a device without end, in the place of each file that a user or a record may name: one line,
the exit code that is documented, and no waiting.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT, Said, milabench_in

from .written import suite

pytestmark = pytest.mark.slow

RUN = ROOT / "tests" / "runs" / "system_a"
MEMORY_MIB = 2000
"""Far more than a command takes; /dev/zero would fill any amount."""


@pytest.fixture
def bounded(environ: dict[str, str]) -> Callable[..., Said]:
    """Runs `milabench ARGUMENTS` with bounded memory, and not for ever."""
    return milabench_in(environ, memory_mib=MEMORY_MIB)


@pytest.fixture(params=["pipe", pytest.param("zero", marks=[pytest.mark.e2e, pytest.mark.long])])
def put(request: pytest.FixtureRequest) -> Callable[[Path], str]:
    """Puts something irregular at a path, where a file may be, and returns the path as text."""

    def make(path: Path) -> str:
        path.unlink(missing_ok=True)
        if request.param == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(f"/dev/{request.param}")
        return str(path)

    return make


def refused(said: Said, code: int, name: str) -> None:
    assert said.code == code, said.err
    (line,) = [line for line in said.err.splitlines() if "not a regular file" in line]
    assert name in line
    assert line.startswith("error: ")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of a recorded run."""
    return Path(shutil.copytree(RUN, tmp_path / "run.x"))


def test_a_record_of_a_run(bounded: Callable[..., Said], put: Callable[[Path], str], run: Path) -> None:
    (run / "summary.json").unlink(missing_ok=True)
    for name in ("manifest.json", "journal.jsonl", next(path.name for path in run.glob("*.data"))):
        kept = (run / name).read_bytes()
        put(run / name)
        refused(bounded("report", str(run)), 6, name)
        (run / name).unlink()
        (run / name).write_bytes(kept)
    # What is made of the records is made again.
    put(run / "summary.json")
    assert bounded("report", str(run)).code == 0
    put(run / "orchestrator.lock")
    assert bounded("status", str(run)).code == 0
    assert bounded("report", str(run)).code == 0


def test_what_a_suite_is_made_of(bounded: Callable[..., Said], put: Callable[[Path], str], tmp_path: Path) -> None:
    here = suite(tmp_path, a="echo fine")
    config = tmp_path / "suite.yaml"
    odd = put(tmp_path / "odd.yaml")
    refused(bounded("config", "check", odd), 2, "odd.yaml")
    refused(bounded("run", *here, "--system", odd), 2, "odd.yaml")
    config.write_text("include: odd.yaml\n")
    refused(bounded("config", "check", str(config)), 2, "odd.yaml")
    config.write_text("a: {driver: odd.yaml}\n")
    refused(bounded("config", "check", str(config)), 2, "odd.yaml")
    refused(bounded("driver", "--config", odd, "--task-name", "a"), 2, "odd.yaml")


def test_what_an_option_names(
    bounded: Callable[..., Said], put: Callable[[Path], str], run: Path, tmp_path: Path
) -> None:
    odd = put(tmp_path / "odd")
    here = suite(tmp_path, a="echo fine")
    refused(bounded("accept", str(run), "--criteria", odd), 2, odd)
    refused(bounded("report", str(run), "--weights", odd), 2, odd)
    refused(bounded("plan", "run", *here, "--diff", odd), 2, odd)
    refused(bounded("outliers", str(run), "--baseline", odd), 6, odd)
    refused(bounded("verify", odd), 6, odd)
    refused(bounded("import", odd), 6, odd)
    refused(bounded("db", "add", str(run), "--db", odd), 6, odd)
    refused(bounded("ops", "--use-current-env", "-c", odd), 2, odd)
    refused(bounded("ops", "--use-current-env", "trace", "summary", odd), 2, odd)
    for words in (("report", odd), ("compare", odd, odd), ("db", "query", "SELECT 1", "--db", odd)):
        said = bounded(*words)
        assert said.code in (3, 6), said.err
        assert said.err.count("\n") == 1, said.err


def test_locks(
    bounded: Callable[..., Said], put: Callable[[Path], str], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, a="echo fine")
    base, locks = Path(environ["MILABENCH_BASE"]), Path(environ["MILABENCH_LOCK_DIR"])
    assert bounded("run", *here, "--display", "none").code == 0
    (lock,) = locks.iterdir()
    put(lock)
    said = bounded("run", *here, "--display", "none")
    assert said.code != 0
    assert str(lock) in said.err
    lock.unlink()
    (run,) = [path for path in (base / "runs").iterdir() if (path / "a.0.data").exists()]
    put(run / "orchestrator.lock")
    said = bounded("resume", str(run), "--force")
    assert said.code in (0, 6), said.err
    base.mkdir(exist_ok=True)
    put(base / ".milabench.lock")
    refused(
        bounded("prepare", "--use-current-env", "--config", "tests/suite/odd.yaml", "--exclude", "unprepared"),
        4,
        "lock",
    )


def test_what_a_benchmark_requires(bounded: Callable[..., Said], put: Callable[[Path], str], tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "benchfile.py").write_text("from milabench import Benchmark\nbenchmark = Benchmark(script='main.py')\n")
    (folder / "main.py").touch()
    put(folder / "requirements.in")
    config = tmp_path / "suite.yaml"
    config.write_text("a: {definition: bench}\n")
    refused(bounded("pin", "--config", str(config), "--arch", "cpu"), 4, "requirements.in")
    put(folder / "benchfile.py")
    said = bounded("list", "--config", str(config))
    assert said.code in (0, 2), said.err
    said = bounded("plan", "run", "--use-current-env", "--config", str(config))
    assert (said.code, "benchfile.py: no such file" in said.err) == (2, True), said.err
