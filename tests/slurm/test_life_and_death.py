"""What ends a run on a cluster: limits, people, nodes, other jobs. Records are kept, nothing is left, the report says why."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.processes import end_of, until
from tests.slurm.cluster import Cluster
from tests.slurm.user import User

ALLOCATED = ("--engine", "slurm")
ENDS: dict[str, tuple[tuple[str, ...], Callable[[Cluster, str], object]]] = {
    "job-cancelled": ((), lambda slurm, job: slurm.run("scancel", job)),
    "node-failed": (
        (),
        lambda slurm, job: slurm.run(
            "scontrol", "update", f"NodeName={slurm.node_of(job)}", "State=DOWN", "Reason=broken"
        ),
    ),
    "preempted": (
        ("--slurm-arg", "partition=low"),
        lambda slurm, job: slurm.run("srun", "-p", "high", "-w", slurm.node_of(job), "true"),
    ),
    # Slurm looks at the limits every half a minute.
    "time-limit": ((), lambda slurm, job: slurm.run("scontrol", "update", f"JobId={job}", "EndTime=now")),
}
LONG = {"time-limit"}


@pytest.mark.parametrize(
    "why", [pytest.param(why, marks=(pytest.mark.e2e, pytest.mark.long) if why in LONG else ()) for why in ENDS]
)
def test_an_allocation_that_ends_under_a_run_is_told_by_its_reason(slurm: Cluster, user: User, why: str) -> None:
    options, end = ENDS[why]
    with user.runs(*ALLOCATED, *options) as process:
        user.wait_for_tree(process)
        (job,) = slurm.run("squeue", "-h", "-o", "%A").split()
        node = slurm.node_of(job)
        done = {entry["step"] for entry in user.entries() if entry.get("outcome") == "passed"}
        end(slurm, job)
        assert end_of(process) == 1, user.log.read_text()
    ended = user.end("tree")
    assert (ended["outcome"], ended["why"]) == ("failed", why)
    assert f"job {job} " in ended["detail"] and node in ended["detail"]
    until(lambda: not user.leftovers(), "nothing of ours is left")
    until(lambda: not slurm.run("squeue", "-h"), "no job is left")
    report = user.says("report").out
    assert why in report and f"job {job} " in report and node in report
    assert done <= {entry["step"] for entry in user.entries() if entry.get("outcome") == "passed"}
    # What did not pass runs again, in an allocation of its own.
    user.calm()
    slurm.wait()  # a node whose slurmd answers comes back by itself
    user.says("resume")
    assert {bench: user.end(bench)["outcome"] for bench in ("first", "tree", "last")} == dict.fromkeys(
        ("first", "tree", "last"), "passed"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_gives_its_nodes_back(slurm: Cluster, user: User, number: signal.Signals) -> None:
    with user.runs(*ALLOCATED) as process:
        user.wait_for_tree(process)
        process.send_signal(number)
        assert end_of(process) == 130, user.log.read_text()
    until(lambda: not slurm.run("squeue", "-h"), "no job is left")
    assert not user.leftovers()
    assert user.end("tree")["outcome"] == "cancelled"


def test_a_killed_run_goes_on_in_the_allocation_that_it_left(slurm: Cluster, user: User) -> None:
    with user.runs(*ALLOCATED) as process:
        user.wait_for_tree(process)
        (job,) = slurm.run("squeue", "-h", "-o", "%A").split()
        process.kill()
        assert end_of(process) == -signal.SIGKILL
    user.calm()
    user.says("resume")
    outputs = "".join(path.read_text() for path in user.run.glob("*.stdout"))
    assert set(outputs.split()) >= {job}
    assert f"it is {job}" in outputs and outputs.count("it is ") == outputs.count(f"it is {job}")
    until(lambda: not slurm.run("squeue", "-h"), "no job is left")
    assert not user.leftovers()


def test_the_allocation_of_a_run_that_nobody_resumes_ends_by_itself(slurm: Cluster, user: User) -> None:
    with user.runs(*ALLOCATED, MILABENCH_ALLOCATION_LEASE_S="2") as process:
        user.wait_for_tree(process)
        process.kill()
    until(lambda: not slurm.run("squeue", "-h"), "the job has ended")
    until(lambda: not user.leftovers(), "nothing of ours is left")
