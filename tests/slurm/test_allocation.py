"""A suite in one allocation of a real Slurm: asked for, found, lost and given back."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PYTHON, ROOT, Said, milabench_in
from tests.processes import started, until
from tests.slurm.cluster import Cluster

Milabench = Callable[..., Said]

SUITE = r"""
profile: quick
_rate: {shell: true, weight: 1.0, max_duration: 100, metrics: {rate: {pattern: 'rate (\d+)', units: x}}}
here:
  inherits: _rate
  plan: {method: njobs, n: 1}
  command: ["echo on $SLURMD_NODENAME sees $CUDA_VISIBLE_DEVICES; echo rate 5"]
across:
  inherits: _rate
  plan: {method: multinode, launcher: ranks}
  num_machines: 2
  command: ["echo rank $RANK of $WORLD_SIZE meets $MASTER_ADDR; echo rate 5"]
long:
  inherits: _rate
  plan: {method: njobs, n: 1}
  command: ["echo rate 5; while [ ! -e GO ]; do sleep 0.1; done"]
"""


@pytest.fixture
def milabench(slurm: Cluster, tmp_path: Path) -> Milabench:
    (tmp_path / "suite.yaml").write_text(SUITE.replace("GO", str(tmp_path / "go")))
    run = milabench_in(environ(tmp_path))
    return lambda *words, **more: run(*words, cwd=tmp_path, **more)


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "MILABENCH_LOCK_DIR": str(tmp_path / "locks"),
        "MILABENCH_BASE": str(tmp_path / "base"),
        "MILABENCH_CONFIG": str(tmp_path / "suite.yaml"),
        **more,
    }


def run_words(*names: str, nodes: int = 2, more: Sequence[str] = ()) -> tuple[str, ...]:
    words = ("run", "--engine", "slurm", "--slurm-arg", f"nodes={nodes}", "--display", "plain", "--select")
    return (*words, ",".join(names), *more)


def the_run(tmp_path: Path) -> Path:
    (run,) = (path for path in (tmp_path / "base" / "runs").iterdir() if path.name.startswith("run."))
    return run


def journal(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (the_run(tmp_path) / "journal.jsonl").read_text().splitlines()]


def allocations(tmp_path: Path) -> list[dict[str, Any]]:
    return [entry["allocation"] for entry in journal(tmp_path) if "allocation" in entry]


def ends(tmp_path: Path) -> dict[str, tuple[str, str, str]]:
    last = {entry["step"]: entry for entry in journal(tmp_path) if entry.get("state") == "ended"}
    return {step: (e["outcome"], e.get("why", ""), e.get("detail", "")) for step, e in last.items()}


def output(tmp_path: Path, step: str) -> str:
    text = (the_run(tmp_path) / f"{step}.data").read_text()
    return "".join(r["data"] for r in map(json.loads, text.splitlines()) if r["event"] == "line")


def started_steps(tmp_path: Path, count: int) -> Callable[[], bool]:
    def condition() -> bool:
        try:
            return sum(entry.get("state") == "started" for entry in journal(tmp_path)) == count
        except (OSError, ValueError):
            return False

    return condition


def start(tmp_path: Path, *words: str, **more: str) -> Any:
    return started(
        [sys.executable, "-m", "milabench", *words],
        cwd=tmp_path,
        env=environ(tmp_path, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_idle(slurm: Cluster) -> bool:
    return not slurm.run("squeue", "-h")


def test_a_suite_runs_on_the_nodes_that_slurm_gives_and_gives_them_back(
    milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    ran = milabench(*run_words("here", "across", more=("--slurm-arg", "gpus_per_node=2", "--arch", "cpu")))
    assert ran.code == 0, ran.err
    assert "asks for 2 nodes" in ran.err
    assert "has n1, n2" in ran.err
    # Two agents, and each sees the devices that Slurm gave the job on its node.
    for number in (1, 2):
        assert f"on n{number} sees 0,1" in output(tmp_path, f"here.0.node{number - 1}")
        # As many slots of the processor as were stated, where that is what stands in for devices.
        for slot in (0, 1):
            rank = 2 * (number - 1) + slot
            assert f"rank {rank} of 4 meets " in output(tmp_path, f"across.D{slot}.node{number - 1}")
    (allocation,) = allocations(tmp_path)
    assert allocation["nodes"] == ["n1", "n2"]
    assert f"mb-{allocation['marker']}-nodes" in slurm.run("scontrol", "show", "job", allocation["job"])
    until(lambda: is_idle(slurm), "the job is gone")
    assert not (tmp_path / "base" / "allocations").exists()


def test_the_agents_run_on_our_python_and_not_on_the_first_of_the_path(milabench: Milabench, tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    # srun passes on our PATH; of another shell, which resumes the run, it may begin with another Python.
    other.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/taken\nexec {PYTHON} "$@"\n')
    other.chmod(0o755)
    ran = milabench(*run_words("here"), PATH=f"{other.parent}:{os.environ['PATH']}")
    assert ran.code == 0, ran.err
    assert not (tmp_path / "taken").exists()


def test_all_launches_of_a_comparison_are_made_in_one_allocation(
    milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    for side in "ab":
        shutil.copy(tmp_path / "suite.yaml", tmp_path / f"{side}.yaml")
    words = ("run", "--engine", "slurm", "--ab", "a.yaml", "b.yaml", "--repeat", "3", "--select", "here")
    ran = milabench(*words, MILABENCH_CONFIG="")
    assert ran.code == 0, ran.err
    manifest = json.loads((the_run(tmp_path) / "manifest.json").read_text())
    assert {step["node"] for step in manifest["plan"]["steps"]} == {"n1"}
    assert len(manifest["plan"]["steps"]) == 6
    assert len(allocations(tmp_path)) == 1


@pytest.mark.parametrize("het", [False, True])
def test_inside_of_an_allocation_its_nodes_are_used_without_an_option(
    milabench: Milabench, slurm: Cluster, tmp_path: Path, het: bool
) -> None:
    words = [sys.executable, "-m", "milabench", "run", "--select", "here,across", "--display", "plain"]
    script = "#!/bin/sh\n" + ("#SBATCH -w n1\n#SBATCH hetjob\n#SBATCH -w n2\n" if het else "#SBATCH -w n[1-2]\n")
    (tmp_path / "job.sh").write_text(f"{script}cd {tmp_path}\n{shlex.join(words)} > out 2>&1; echo $? > code\n")
    slurm.run("sbatch", "--output=/dev/null", str(tmp_path / "job.sh"), **environ(tmp_path))
    until((tmp_path / "code").exists, "the job has ended")
    until((tmp_path / "code").read_text)
    assert (tmp_path / "code").read_text() == "0\n", (tmp_path / "out").read_text()
    assert [f"on n{number} sees" in output(tmp_path, f"here.0.node{number - 1}") for number in (1, 2)] == [True, True]
    (allocation,) = allocations(tmp_path)
    assert "marker" not in allocation  # it was there before us, and stays


def test_what_a_benchmark_needs_is_prepared_once_on_this_machine(
    milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    odd = {"MILABENCH_CONFIG": str(ROOT / "tests" / "suite" / "odd.yaml"), "MILABENCH_USE_CURRENT_ENV": "1"}
    ran = milabench(*run_words("good"), **odd)
    assert ran.code == 0, ran.err
    assert "preparing good first" in ran.err
    assert (tmp_path / "base" / "data" / "good" / "prepared").read_text() == "once\n"
    assert set(ends(tmp_path)) == {"good.D0.node0", "good.D0.node1"}
    # `prepare` on the login node and `run` mean the same preparation.
    prepared = milabench("prepare", "--engine", "slurm", "--select", "good", **odd)
    assert (prepared.code, "nothing to do" in prepared.err) == (0, True), prepared.err
    assert is_idle(slurm)


def test_prepare_runs_in_the_partition_that_has_a_network(milabench: Milabench, slurm: Cluster, tmp_path: Path) -> None:
    odd = {"MILABENCH_CONFIG": str(ROOT / "tests" / "suite" / "odd.yaml"), "MILABENCH_USE_CURRENT_ENV": "1"}
    words = ("--engine", "slurm", "--slurm-arg", "install_partition=short", "--slurm-arg", "nodes=8")
    prepared = milabench("prepare", "--select", "good", *words, **odd)
    assert prepared.code == 0, prepared.err
    assert "slurm: prepare runs in partition short" in prepared.err
    assert (tmp_path / "base" / "data" / "good" / "prepared").read_text() == "once\n"
    jobs = (slurm.folder / "jobcomp").read_text().splitlines()
    assert any("Name=mb-install " in job and "Partition=short " in job and "NodeCnt=1 " in job for job in jobs)
    failed = milabench("prepare", "--select", "unprepared", *words, **odd)
    assert failed.code == 4, failed.err


def test_devices_of_an_unknown_kind_are_one_line_before_anything_is_asked_for(
    milabench: Milabench, tmp_path: Path
) -> None:
    refused = milabench(*run_words("here", more=("--slurm-arg", "gpus_per_node=2")))
    assert refused.code == 2
    assert [line.split(":")[1] for line in refused.err.splitlines()] == [" system.arch"]
    assert not (tmp_path / "base" / "allocations").exists()


def test_engine_local_in_an_allocation_means_this_machine(milabench: Milabench, tmp_path: Path) -> None:
    variables = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]"}
    ran = milabench("run", "--engine", "local", "--select", "here", **variables)
    assert ran.code == 0, ran.err
    assert {entry.get("node") for entry in journal(tmp_path) if "step" in entry} == {"local"}


STALE = {"SLURM_JOB_NODELIST": "n1", "SLURMD_NODENAME": "n1"}


def test_variables_of_a_job_that_is_over_are_no_allocation(
    milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    over = slurm.run("sbatch", "--parsable", "--wrap", "true", "-o", "/dev/null").strip()
    until(lambda: is_idle(slurm))
    for job, says in (("99999", "Slurm knows no such job"), (over, f"job {over} is COMPLETED")):
        refused = milabench("run", "--select", "here", SLURM_JOB_ID=job, **STALE)
        assert refused.code == 2, refused.err
        (line,) = [line for line in refused.err.splitlines() if line.startswith("error:")]
        assert line.startswith(f"error: SLURM_JOB_ID={job}: {says}")
        assert not (tmp_path / "base" / "runs").exists()
        # What does nothing on the nodes asks nothing.
        assert milabench("plan", "run", "--select", "here", SLURM_JOB_ID=job, **STALE).code == 0


def test_a_slurm_that_is_silent_about_our_job_does_not_hinder_the_run(
    milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("squeue", "scontrol", "sacct"):
        (tools / name).write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    ran = milabench("run", "--select", "here", SLURM_JOB_ID="99999", PATH=path, **STALE)
    assert ran.code == 0, ran.err


def test_what_slurm_refuses_is_its_own_reason_in_one_line(milabench: Milabench, tmp_path: Path) -> None:
    refused = milabench(*run_words("here", more=("--slurm-arg", "partition=nowhere")))
    assert refused.code == 2
    (line,) = [line for line in refused.err.splitlines() if line.startswith("error:")]
    assert "invalid partition" in line.lower()
    assert not (tmp_path / "base" / "allocations").exists()
    assert not (tmp_path / "base" / "runs").exists()


def test_ctrl_c_while_the_job_waits_cancels_it(milabench: Milabench, slurm: Cluster, tmp_path: Path) -> None:
    slurm.run("sbatch", "-N8", "--exclusive", "--wrap", "sleep 600", "-o", "/dev/null")
    until(lambda: set(slurm.states().values()) == {"allocated"})
    with start(tmp_path, *run_words("here")) as process:
        lines = iter(process.stderr)
        assert any("waits: " in line and "Resources" in line for line in lines)
        process.send_signal(signal.SIGINT)
        rest = "".join(lines)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert len(slurm.run("squeue", "-h", "-o", "%A").split()) == 1
    assert not (tmp_path / "base" / "allocations").exists()


@pytest.fixture
def killed_waiting(milabench: Milabench, slurm: Cluster, tmp_path: Path) -> str:
    """The job that an orchestrator waited for which was killed; it may not begin before it is released."""
    words = run_words("here", more=("--slurm-arg", "begin=now+1hour"))
    with start(tmp_path, *words, MILABENCH_ALLOCATION_LEASE_S="900") as process:
        assert any("waits: " in line for line in iter(process.stderr.readline, ""))
        process.kill()
    (job,) = slurm.run("squeue", "-h", "-o", "%A").split()
    return job


@pytest.mark.parametrize("words", [("cancel",), ("gc", "processes", "--yes")])
def test_a_job_that_waits_for_a_dead_orchestrator_is_taken_out_of_the_queue(
    killed_waiting: str, milabench: Milabench, slurm: Cluster, tmp_path: Path, words: tuple[str, ...]
) -> None:
    if words[0] == "gc":
        asked = milabench("gc", "processes")
        assert (asked.code, is_idle(slurm)) == (1, False)
        assert f"job {killed_waiting} is PENDING (BeginTime); nodes asked for by " in asked.out
    done = milabench(*words)
    assert done.code == 0, done.err
    assert f"{words[0]}: ended job {killed_waiting} is PENDING" in done.err
    until(lambda: is_idle(slurm))
    assert not (tmp_path / "base" / "allocations").exists()
    assert "no run below this base left" in milabench("gc", "processes").err


@pytest.mark.e2e
@pytest.mark.long
def test_a_job_that_begins_when_its_orchestrator_is_dead_ends_at_once(
    killed_waiting: str, slurm: Cluster, tmp_path: Path
) -> None:
    slurm.run("scontrol", "update", f"JobId={killed_waiting}", "StartTime=now")
    # Long before the lease would end.
    until(lambda: is_idle(slurm) and not slurm.job_processes(), "the job has ended")
    assert not list((tmp_path / "base" / "allocations").iterdir())


def test_one_that_waits_is_neither_cancelled_nor_cleaned_up(
    milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    with start(tmp_path, *run_words("here", more=("--slurm-arg", "begin=now+1hour"))) as process:
        assert any("waits: " in line for line in iter(process.stderr.readline, ""))
        assert "no run below this base left" in milabench("gc", "processes", "--yes").err
        assert milabench("cancel").code != 0
        (job,) = slurm.run("squeue", "-h", "-o", "%A").split()
        slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    assert process.returncode == 0


def test_however_often_it_is_interrupted_nothing_is_left(slurm: Cluster, milabench: Milabench, tmp_path: Path) -> None:
    scancel = tmp_path / "tools" / "scancel"
    scancel.parent.mkdir()
    scancel.write_text(f'#!/bin/sh\nsleep 2; exec {shutil.which("scancel")} "$@"\n')
    scancel.chmod(0o755)
    path = f"{scancel.parent}:{os.environ['PATH']}"
    with start(tmp_path, *run_words("here", more=("--slurm-arg", "begin=now+1hour")), PATH=path) as process:
        assert any("waits: " in line for line in iter(process.stderr.readline, ""))
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
    assert process.returncode == 130
    until(lambda: is_idle(slurm))
    assert not (tmp_path / "base" / "allocations").exists()


def test_ctrl_c_during_a_step_gives_the_nodes_back(milabench: Milabench, slurm: Cluster, tmp_path: Path) -> None:
    with start(tmp_path, *run_words("long")) as process:
        until(started_steps(tmp_path, 2))
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert {outcome for outcome, *_ in ends(tmp_path).values()} == {"cancelled"}
    until(lambda: is_idle(slurm) and not slurm.job_processes())


def test_an_orchestrator_that_is_killed_leaves_no_allocation_behind(
    milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    with start(tmp_path, *run_words("long"), MILABENCH_ALLOCATION_LEASE_S="4") as process:
        until(started_steps(tmp_path, 2))
        process.kill()
    until(lambda: is_idle(slurm) and not slurm.job_processes(), "the lease has ended")
    assert not (tmp_path / "base" / "allocations" / allocations(tmp_path)[0]["marker"]).exists()


@pytest.fixture
def killed(milabench: Milabench, tmp_path: Path) -> Iterator[str]:
    """The job of a run whose orchestrator was killed; steps end when they are run again."""
    with start(tmp_path, *run_words("long")) as process:
        until(started_steps(tmp_path, 2))
        process.kill()
    (tmp_path / "go").touch()
    yield allocations(tmp_path)[0]["job"]


def test_resume_goes_on_in_the_allocation_that_is_still_there(
    killed: str, milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    status = milabench("status")
    assert f"n1, n2, of Slurm's job {killed}. They are still held" in status.out
    resumed = milabench("resume")
    assert resumed.code == 0, resumed.err
    assert f"job {killed} still holds n1, n2" in resumed.err
    assert [allocation["job"] for allocation in allocations(tmp_path)] == [killed, killed]
    until(lambda: is_idle(slurm) and not slurm.job_processes())
    assert "still held" not in milabench("status").out


def test_resume_asks_for_the_same_nodes_and_with_force_for_any(
    killed: str, milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    slurm.run("scancel", killed)
    until(lambda: is_idle(slurm))
    slurm.run("sbatch", "-w", "n1", "--exclusive", "--wrap", "sleep 600", "-o", "/dev/null")
    until(lambda: slurm.states()["n1"] == "allocated")
    with start(tmp_path, "resume", "--display", "plain") as process:
        assert any("waits: " in line and "Resources" in line for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 130
    forced = milabench("resume", "--force")
    assert forced.code == 0, forced.err
    assert allocations(tmp_path)[-1]["nodes"] == ["n2", "n3"]


@pytest.mark.parametrize("words", [("cancel", "latest"), ("gc", "processes", "--yes")])
def test_the_nodes_of_a_dead_orchestrator_are_given_back(
    killed: str, milabench: Milabench, slurm: Cluster, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = milabench(*words)
    assert done.code == 0, done.err
    assert f"gave back n1, n2, of slurm's job {killed}" in done.err.lower()
    until(lambda: is_idle(slurm) and not slurm.job_processes())
    assert not (tmp_path / "base" / "allocations").exists()
    assert "nothing to cancel" in milabench("cancel", str(the_run(tmp_path))).err


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("cancelled", "job-cancelled"),
        ("preempted", "preempted"),
        # Slurm takes half a minute to believe that a node is gone.
        pytest.param("crashed", "node-failed", marks=[pytest.mark.e2e, pytest.mark.long]),
    ],
)
def test_a_job_that_is_taken_away_is_an_outcome_of_its_own(
    milabench: Milabench, slurm: Cluster, tmp_path: Path, how: str, why: str
) -> None:
    with start(tmp_path, *run_words("long", more=("--slurm-arg", "partition=low"))) as process:
        until(started_steps(tmp_path, 2))
        job = allocations(tmp_path)[0]["job"]
        if how == "cancelled":
            slurm.run("scancel", job)
        elif how == "preempted":
            slurm.run("srun", "-p", "high", "-N8", "true")
        else:
            slurm.crash("n2")
    try:
        assert process.returncode == 1
        steps = ends(tmp_path)
        assert {step: end[:2] for step, end in steps.items()} == dict.fromkeys(steps, ("failed", why))
        assert all(f"job {job} is " in detail and "n1,n2" in detail for *_, detail in steps.values()), steps
        assert f"failed   long.0.node0 on n1: {why}: " in milabench("status").out
        until(lambda: is_idle(slurm) and not slurm.job_processes())
    finally:
        if how == "crashed":
            slurm.start("n2")
            slurm.wait(nodes=["n2"])


def test_a_base_that_the_nodes_do_not_share_is_one_line(milabench: Milabench, slurm: Cluster, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a folder that nobody else sees")
    base = tmp_path / "base"
    base.mkdir()
    words = [sys.executable, "-m", "milabench", *run_words("here")]
    mounted = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {base} && exec "$@"', "sh", *words]
    done = subprocess.run(
        mounted, cwd=ROOT, env=environ(tmp_path), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert line.startswith(f"error: {base}: is another folder on n1, n2.")
    until(lambda: is_idle(slurm))


def test_a_detached_run_keeps_its_nodes_and_gives_them_back(
    milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    detached = milabench(*run_words("long", more=("--detach",)), MILABENCH_ALLOCATION_LEASE_S="4")
    assert detached.code == 0, detached.err
    # Longer than the lease: it is renewed by the process that left.
    until(lambda: not is_idle(slurm) and slurm.run("squeue", "-h", "-o", "%M").strip() >= "0:07")
    assert not is_idle(slurm)
    (tmp_path / "go").touch()
    until(lambda: is_idle(slurm))
    assert {outcome for outcome, *_ in ends(tmp_path).values()} == {"passed"}


@pytest.mark.parametrize(
    ("suite", "code", "says"),
    [
        ("a: {command: [echo, '{nothing}'], max_duration: 9}", 2, "{nothing}"),
        (f"a: {{definition: '{ROOT}/benchmarks/digits', max_duration: 9}}", 4, "milabench install"),
    ],
    ids=["a placeholder without a value", "an environment that is not there"],
)
def test_what_is_wrong_is_said_before_nodes_are_asked_for(
    slurm: Cluster, milabench: Milabench, tmp_path: Path, suite: str, code: int, says: str
) -> None:
    (tmp_path / "suite.yaml").write_text(suite)
    said = milabench("run", "--engine", "slurm")
    assert said.code == code
    assert says in said.err
    assert "asks for" not in said.err
