"""A squeue that hangs, on a real cluster: it delays neither jobs nor signals, and no step is lost or done twice."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples import ALL
from tests.processes import end_of, until
from tests.slurm.cluster import Cluster
from tests.slurm.user import User
from tests.ssh.conftest import carrying

SUBMITTED = ("--engine", "slurm", "--submit")
BENCHES = {"first", "tree", "last"}
pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture
def hanging(slurm: Cluster, user: User, tmp_path: Path) -> Iterator[Path]:
    """A folder; while it has a file `hang`, squeue does not answer whoever asks from the user's shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    real = shutil.which("squeue")
    (folder / "squeue").write_text(f'#!/bin/sh\n[ ! -e {folder}/hang ] || {{ sleep 3000; }}\nexec {real} "$@"\n')
    (folder / "squeue").chmod(0o755)
    (folder / "hang").touch()
    user.environ["PATH"] = f"{folder}:{user.environ['PATH']}"
    user.environ["HANGING"] = str(folder)
    user.calm()
    yield folder
    for pid in hung(folder):  # of an orchestrator that was killed; a real squeue ends by itself
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def hung(folder: Path) -> list[int]:
    """The commands that still do not answer."""
    return carrying(f"HANGING={folder}")


def starts(user: User) -> dict[str, int]:
    """How often each benchmark was started."""
    found = [entry["step"].partition(".")[0] for entry in user.entries() if entry.get("state") == "started"]
    return {name: found.count(name) for name in found}


def test_jobs_end_without_it_and_an_interrupt_does_not_wait_for_it(user: User, hanging: Path) -> None:
    with user.runs(*SUBMITTED) as process:
        until(lambda: list(user.base.glob("runs/run.*")) and user.passed() == BENCHES, "all steps have passed")
        process.send_signal(signal.SIGINT)
        assert end_of(process) == 130, user.log.read_text()
    until(lambda: not hung(hanging), "no squeue of ours is left")
    assert user.says("status", expect=None).code == 0
    (hanging / "hang").unlink()
    user.says("resume")
    assert starts(user) == dict.fromkeys(BENCHES, 1)


@pytest.mark.parametrize("lines", range(3, 12, 1 if ALL else 5))
def test_whenever_its_orchestrator_is_killed_no_step_is_lost_or_done_twice(
    user: User, hanging: Path, lines: int
) -> None:
    with user.runs(*SUBMITTED) as process:
        until(
            lambda: process.poll() is not None or (list(user.base.glob("runs/run.*")) and len(user.entries()) >= lines),
            f"{lines} entries",
        )
        os.kill(process.pid, signal.SIGKILL)
        end_of(process)
    (hanging / "hang").unlink()
    user.says("resume")
    assert user.passed() == BENCHES
    assert starts(user) == dict.fromkeys(BENCHES, 1)
