"""`milabench try`: a program of one's own, measured as it is; nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.devices.locks import DeviceLocks
from tests.commands import Said
from tests.processes import started, until

Try = Callable[..., Said]
SHORT = "import sys, time\nfor step in range(5):\n    time.sleep(0.01)\nprint(sys.argv)\n"


@pytest.fixture
def here(tmp_path: Path, environ: dict[str, str]) -> Path:
    """The folder where it is started; that of temporary files is empty, before and after."""
    folder, scratch = tmp_path / "here", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    environ["TMPDIR"] = str(scratch)
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"  # a `python` for the commands of the tests
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "MILABENCH_WAIT"):
        environ.pop(name, None)
    return folder


@pytest.fixture
def tried(environ: dict[str, str], here: Path) -> Try:
    """`milabench try WORDS`, which leaves neither temporary files nor a base."""

    def run(*words: str) -> Said:
        # A start for real: the folder of temporary files is a variable that is read once.
        command = [sys.executable, "-m", "milabench", "try", "--display", "none", *words]
        done = subprocess.run(command, env=environ, cwd=here, capture_output=True, text=True, check=False)
        said = Said(done.returncode, done.stdout, done.stderr)
        assert list(Path(environ["TMPDIR"]).iterdir()) == []
        assert not Path(environ["MILABENCH_BASE"]).exists()
        return said

    return run


def test_a_program_that_ends_before_its_steps_are_measured_is_timed_as_a_whole(tried: Try, here: Path) -> None:
    (here / "my train.py").write_text(SHORT.replace("range(5)", "range(int(sys.argv[2]))"))
    said = tried("my train.py", "--steps", "5")
    assert said.code == 0, said.err
    number, *_, measured, following = said.out.splitlines()
    assert number.startswith("my train.py: 0.") and " s ± " in number
    assert measured.startswith("measured: the time of the whole program, for it ended after ")
    assert following.startswith("next: `milabench new NAME --from ")
    assert sorted(path.name for path in here.iterdir()) == ["my train.py"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["none.py"], 2, "none.py: no such file in "),
        (["python", "-m", "no_such_module"], 2, "-m no_such_module: no such module in "),
        (["no-such-program"], 2, "no-such-program: no such command on the PATH"),
        (["torchrun"], 2, "torchrun: expected a script (.py), or -m and a module"),
        (["needs.py"], 4, "needs.py imports no_such_package (line 2), not installed for "),
        (["broken.py"], 2, "broken.py:1: is no Python: "),
        (["need.py"], 2, "need.py: no such file in "),
        (["notes.md"], 2, "notes.md: is no program. Name a script (.py), "),
        (["needs.py", "--help"], 2, "--help is an option of needs.py. `milabench try --help` shows ours"),
    ],
)
def test_what_cannot_be_started_is_one_line(tried: Try, here: Path, words: list[str], code: int, text: str) -> None:
    (here / "needs.py").write_text("import json\nimport no_such_package\n")
    (here / "broken.py").write_text("x = = 1\n")
    (here / "notes.md").write_text("# Notes\n")
    said = tried(*words)
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith(f"error: {text}")
    assert len(said.err.splitlines()) == 1


def test_of_a_program_that_crashes_the_end_of_its_output_is_shown(tried: Try, here: Path) -> None:
    (here / "train.py").write_text("for step in range(5):\n    1 / (3 - step)\n")
    said = tried("train.py")
    assert said.code == 1
    assert "ZeroDivisionError: division by zero" in said.err
    assert said.out.startswith("next: `")


def test_a_module_is_found_where_python_finds_it(tried: Try, here: Path) -> None:
    package = here / "tool"
    package.mkdir()
    (package / "__main__.py").write_text(SHORT)
    (package / "__init__.py").touch()
    said = tried("python", "-m", "tool")
    assert said.code == 0, said.err
    assert said.out.startswith("-m tool: 0.")


@pytest.mark.skipif(shutil.which("true") is None, reason="no program `true`")
def test_another_program_is_timed(tried: Try) -> None:
    said = tried("sh", "-c", "sleep 0.05")
    assert said.code == 0, said.err
    assert said.out.splitlines()[-2] == "measured: the time of the whole program"
    assert "sh: Measured: the time of the whole program, until it ends" in said.err
    assert said.out.splitlines()[-1].startswith("next: `milabench bench -- sh -c 'sleep 0.05'`")


def test_a_device_that_is_held_is_said_before_anything_starts(tried: Try, here: Path, environ: dict[str, str]) -> None:
    (here / "train.py").write_text(SHORT)
    locks = DeviceLocks(environ["MILABENCH_LOCK_DIR"])
    opened = locks.open([f"cpu-{socket.gethostname()}"])
    assert locks.take(opened) is None
    locks.keep(opened, run="other")
    try:
        said = tried("train.py")
    finally:
        locks.release()
    assert said.code == 5, said.err
    assert "is held by" in said.err


def test_an_interrupt_ends_the_program_and_leaves_nothing(environ: dict[str, str], here: Path) -> None:
    (here / "train.py").write_text("import pathlib, time\npathlib.Path('began').touch()\ntime.sleep(300)\n")
    argv = [sys.executable, "-m", "milabench", "try", "--display", "none", "train.py"]
    with started(argv, env=environ, cwd=here, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        until((here / "began").exists)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(Path(environ["TMPDIR"]).iterdir()) == []


@pytest.mark.slow
def test_a_loop_is_measured_for_half_a_minute_and_then_ended(tried: Try, here: Path) -> None:
    (here / "train.py").write_text("import time\nfor step in range(1_000_000):\n    time.sleep(0.02)\n")
    said = tried("train.py")
    assert said.code == 0, said.err
    number, *_, seen, following = said.out.splitlines()
    assert 40 < float(number.split()[1]) < 50 and " steps/s ± ?, imprecise" in number
    assert seen == "observed: the iterations of the program's own loop (`for step in range(1000000)`, line 2)"
    assert (
        following
        == "next: `milabench new NAME --from train.py`: makes a benchmark, whose number comes from several processes"
    )
