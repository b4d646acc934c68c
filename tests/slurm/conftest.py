"""Real clusters: one that a worker's tests share, and others to order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import until
from tests.slurm.cluster import Cluster, cluster, why_no_slurm
from tests.slurm.user import User


@pytest.fixture(scope="session")
def shared_slurm() -> Iterator[Cluster]:
    """Eight nodes with two fake GPUs each, without accounting; for all tests of a worker. Ask for `slurm`."""
    if (why := why_no_slurm()) is not None:
        pytest.skip(why)
    with cluster() as made:
        yield made


@pytest.fixture
def slurm(shared_slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The shared cluster, idle; Slurm's commands talk to it. What a test leaves on it is cancelled."""
    for name, value in shared_slurm.environ.items():
        monkeypatch.setenv(name, value)
    yield shared_slurm
    for kind in ("prolog", "epilog"):
        for node in shared_slurm.nodes:
            shared_slurm.hook(kind, node, "")
    jobs = shared_slurm.run("squeue", "-h", "-o", "%A").split()
    if jobs:
        shared_slurm.run("scancel", "--signal=KILL", "--full", *jobs, check=False)
        shared_slurm.run("scancel", *jobs, check=False)
    until(lambda: not shared_slurm.run("squeue", "-h"), "no job is left")
    for node, state in shared_slurm.states().items():
        if state.startswith(("down", "drain")):
            # Refused where the node has come back by itself meanwhile; waited for either way.
            shared_slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
    shared_slurm.wait()


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that all nodes see, as they are this machine."""
    return tmp_path


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> User:
    """Who has a base of their own on the cluster's shared folder, and a suite of commands in it."""
    return User(tmp_path)
