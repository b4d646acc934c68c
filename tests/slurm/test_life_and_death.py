"""What ends a run on a cluster: limits, people, nodes, other jobs. Records are kept, nothing is left, the report says why."""

from __future__ import annotations

import json
import os
import signal
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
    "why", [pytest.param(why, marks=() if why == "preempted" else pytest.mark.long) for why in ENDS]
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
    # Of a job that is no more its own process may write an end as well, before or after that.
    benches = {bench["bench"]: bench for bench in json.loads(user.says("report", "--json").out)["benchmarks"]}
    (ended,) = benches["tree"]["failures"]
    assert (benches["tree"]["outcome"], ended["why"]) == ("failed", why), ended
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


# The first ends well whenever Slurm asks for its end; of the second the signal ends the sleep only.
OBLIGING = {
    "trap": "trap 'exit 0' TERM; echo $SLURM_JOB_ID > {begun}; sleep 60 & wait",
    "line": "echo $SLURM_JOB_ID > {begun}; sleep 60; echo done",
}


@pytest.mark.e2e
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", OBLIGING)
def test_a_step_that_ends_well_because_its_job_is_ended_has_not_passed(
    slurm: Cluster, user: User, tmp_path: Path, way: str, program: str
) -> None:
    begun = tmp_path / "begun"
    words = json.dumps(["sh", "-c", OBLIGING[program].format(begun=begun)])
    with user.suite.open("a") as file:
        file.write(f"short: {{inherits: _line, shell: false, timed: true, command: {words}}}\n")
    with user.runs(*WAYS[way], "--select", "short") as process:
        job = until(lambda: begun.exists() and begun.read_text().strip(), "the step runs")
        slurm.run("scancel", job)
        assert end_of(process) == 1, user.log.read_text()
    ended = user.end("short")
    assert (ended["outcome"], ended["why"]) == ("failed", "job-cancelled"), ended
    assert not user.passed()


@pytest.mark.e2e
def test_a_step_that_notices_the_end_of_its_job_before_us_has_not_passed(
    slurm: Cluster, user: User, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    words = json.dumps(["sh", "-c", OBLIGING["trap"].format(begun=begun)])
    with user.suite.open("a") as file:
        file.write(f"short: {{inherits: _line, shell: false, timed: true, command: {words}}}\n")
    with user.runs(*WAYS["jobs"], "--select", "short") as process:
        until(begun.exists, "the step runs")
        step = until(lambda: [entry["pid"] for entry in user.entries() if "step" in entry and "pid" in entry], "it")[0]
        (job,) = [entry for entry in user.entries() if entry.get("run") == "started" and "share" in entry]
        os.kill(job["pid"], signal.SIGSTOP)  # until Slurm, before it ends a job, lets its processes go on
        os.kill(step, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{step}").exists(), "the step has ended")
        slurm.run("scancel", job["job"])
        assert end_of(process) == 1, user.log.read_text()
    ended = user.end("short")
    assert (ended["outcome"], ended["why"]) == ("failed", "job-cancelled"), ended
    assert not user.passed()
