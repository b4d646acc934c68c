"""What ends a run on a cluster: limits, people, nodes, other jobs. Records are kept, nothing is left, the report says why."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import end_of, until
from tests.slurm.cluster import Cluster, Settings, cluster, why_no_slow_node, why_no_slurm
from tests.slurm.user import User

WAYS = {"allocation": ("--engine", "slurm"), "jobs": ("--engine", "slurm", "--submit")}
BENCHES = ("first", "tree", "last")


def break_node(slurm: Cluster, job: str) -> None:
    """An administrator takes the node of a job away; it comes back by itself."""
    slurm.run("scontrol", "update", f"NodeName={slurm.node_of(job)}", "State=DOWN", "Reason=broken")


ENDS: dict[str, tuple[tuple[str, ...], Callable[[Cluster, str], object]]] = {
    "job-cancelled": ((), lambda slurm, job: slurm.run("scancel", job)),
    "node-failed": ((), break_node),
    "preempted": (
        ("--slurm-arg", "partition=low"),
        lambda slurm, job: slurm.run("srun", "-p", "high", "--exclusive", "-w", slurm.node_of(job), "true"),
    ),
    # Slurm looks at the limits every half a minute.
    "time-limit": ((), lambda slurm, job: slurm.run("scontrol", "update", f"JobId={job}", "EndTime=now")),
}


@pytest.mark.e2e
@pytest.mark.parametrize(
    "way",
    ["jobs", pytest.param("allocation", marks=pytest.mark.long)],  # test_allocation.py has those of every build
)
@pytest.mark.parametrize(
    "why", [pytest.param(why, marks=pytest.mark.long if why == "time-limit" else ()) for why in ENDS]
)
def test_a_job_that_is_ended_under_a_run_leaves_records_and_its_reason_and_nothing_else(
    slurm: Cluster, user: User, way: str, why: str
) -> None:
    options, end = ENDS[why]
    with user.runs(*WAYS[way], *options) as process:
        job = user.wait_for_tree(process)
        node = slurm.node_of(job)
        done = user.passed()
        end(slurm, job)
        assert end_of(process) == 1, user.log.read_text()
    until(lambda: not user.leftovers(), "nothing of ours is left")
    until(lambda: not slurm.run("squeue", "-h"), "no job is left")
    ended = user.end("tree")
    assert (ended["outcome"], ended["why"]) == ("failed", why), ended
    assert f"job {job} " in ended["detail"]
    assert node in ended["detail"]
    report = user.says("report").out
    assert why in report
    assert f"job {job} " in report
    assert done <= user.passed()
    user.calm()
    slurm.wait()  # a node whose slurmd answers comes back by itself
    user.says("resume")
    assert user.passed() == set(BENCHES)


@pytest.mark.e2e
@pytest.mark.parametrize("way", WAYS)
def test_a_step_beyond_the_memory_of_its_job_is_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    if (why := why_no_slurm() or why_no_slow_node()) is not None:
        pytest.skip(why)
    with cluster(Settings(nodes=1, proctrack="cgroup", prefix=f"m{os.getpid()}n")) as made:
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        user = User(tmp_path)
        code = "x = bytearray(900 << 20); import time; time.sleep(60)"
        with user.suite.open("a") as file:
            file.write(f"large: {{inherits: _line, shell: false, command: ['{sys.executable}', -c, '{code}']}}\n")
        limit = ("--slurm-arg", "mem=400")
        user.says("run", *WAYS[way], *limit, "--select", "large,first", expect=1)
        assert user.passed() == {"first"}
        ended = user.end("large")
        assert (ended["outcome"], ended["why"]) == ("failed", "out-of-memory"), ended
        until(lambda: not made.run("squeue", "-h") and not user.leftovers(), "nothing is left")
