"""The clusters of the other tests are what they say: nodes, fake GPUs, hooks, preemption, and nothing left of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.processes import until
from tests.slurm.cluster import Cluster, Settings, cluster, on_hosts, why_no_slurm
from tests.ssh.hosts import cut, heal, why_no_namespaces


def outcome(slurm: Cluster, job: str) -> str:
    """The state of a job in Slurm's words."""
    fields = slurm.run("scontrol", "-o", "show", "job", job).split()
    return next(field.partition("=")[2] for field in fields if field.startswith("JobState="))


def test_eight_nodes_run_a_step_at_once(slurm: Cluster) -> None:
    names = slurm.run("srun", "-N8", "sh", "-c", "echo $SLURMD_NODENAME").split()
    assert sorted(names) == [f"n{number}" for number in range(1, 9)]


def test_concurrent_jobs_on_a_node_see_different_gpus(slurm: Cluster, shared: Path) -> None:
    text = 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS"; sleep 600'
    for number in range(2):
        slurm.run("sbatch", "-w", "n1", "--gres=gpu:1", "-o", str(shared / f"{number}"), "--wrap", text)
    until(lambda: [path for path in shared.iterdir() if path.read_text()][1:])
    said = {path.read_text().strip() for path in shared.iterdir()}
    assert said == {"n1 0 0", "n1 1 1"}


def test_a_job_of_the_low_partition_is_preempted(slurm: Cluster) -> None:
    low = slurm.run(
        "sbatch", "--parsable", "--no-requeue", "-p", "low", "-N8", "--exclusive", "--wrap", "sleep 600"
    ).strip()
    until(lambda: outcome(slurm, low) == "RUNNING")
    slurm.run("srun", "-p", "high", "-N8", "true")
    assert outcome(slurm, low) == "PREEMPTED"


def test_hooks_run_on_their_node_only(slurm: Cluster, shared: Path) -> None:
    slurm.hook("prolog", "n2", f"#!/bin/sh\necho $SLURM_JOB_ID $SLURMD_NODENAME >> {shared}/prolog\n")
    slurm.run("srun", "-N8", "true")
    assert (shared / "prolog").read_text().split()[1:] == ["n2"]


@pytest.mark.e2e
@pytest.mark.long
def test_a_node_that_crashes_fails_its_job_and_comes_back(slurm: Cluster) -> None:
    job = slurm.run("sbatch", "--parsable", "--no-requeue", "-w", "n3", "--wrap", "sleep 600").strip()
    until(lambda: outcome(slurm, job) == "RUNNING" and slurm.job_processes("n3"))
    slurm.crash("n3")
    try:
        assert not slurm.job_processes("n3")
        until(lambda: outcome(slurm, job) == "NODE_FAIL")
    finally:
        slurm.start("n3")
    slurm.wait(nodes=["n3"])


def test_nothing_is_left_of_a_cluster_that_is_taken_down() -> None:
    if (why := why_no_slurm()) is not None:
        pytest.skip(why)
    with cluster(Settings(nodes=2)) as made:
        made.run("sbatch", "-N2", "--wrap", "srun sleep 600 & setsid sleep 600 & wait")
        until(lambda: len(made.job_processes()) > 3)
    assert not made.job_processes()
    assert not _mentioning(str(made.folder))
    assert not made.folder.exists()


def _mentioning(text: str) -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.parent.name != str(os.getpid()) and text.encode() in path.read_bytes():
                found.append(path.read_bytes())
        except OSError:
            continue
    return found


def test_a_cluster_from_the_command_line_as_another_user(tmp_path: Path) -> None:
    if (why := why_no_slurm()) is not None:
        pytest.skip(why)
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/") and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o111)
    folder = tmp_path / "c"
    command = [sys.executable, "-m", "tests.slurm.cluster"]
    try:
        said = subprocess.run(
            [*command, "up", str(folder), "--nodes", "2", "--user", "nobody"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.stdout == f"export SLURM_CONF={folder}/slurm.conf\n", said.stderr
        it = Cluster(folder, Settings(nodes=2, user="nobody"))
        # The tasks write when they like.
        words = it.run("srun", "-N2", "--gres=gpu:1", "sh", "-c", "id -un; echo $CUDA_VISIBLE_DEVICES").split()
        assert sorted(words) == ["0", "0", "nobody", "nobody"]
    finally:
        subprocess.run([*command, "down", str(folder)], cwd=ROOT, check=True)
    assert not _mentioning(str(folder))


@pytest.mark.e2e
def test_a_cluster_with_accounting_remembers_what_a_job_was_given() -> None:
    if (why := why_no_slurm(accounting=True)) is not None:
        pytest.skip(why)
    with cluster(Settings(nodes=1, accounting=True)) as made:
        made.run("srun", "--gres=gpu:1", "sh", "-c", "exit 3", check=False)
        line = until(lambda: made.run("sacct", "-X", "-n", "-P", "-o", "state,exitcode,alloctres"))
        assert line.startswith("FAILED|3:0|") and "gres/gpu=1" in line


@pytest.mark.e2e
@pytest.mark.long
def test_a_node_whose_network_is_cut_fails_its_job_and_comes_back() -> None:
    if (why := why_no_slurm() or why_no_namespaces()) is not None:
        pytest.skip(why)
    with on_hosts(2) as (made, hosts):
        assert sorted(made.run("srun", "-N2", "hostname").split()) == ["n0", "n1"]
        job = made.run("sbatch", "--parsable", "--no-requeue", "-w", "n1", "--wrap", "sleep 600").strip()
        until(lambda: outcome(made, job) == "RUNNING")
        cut(hosts.hosts[1])
        until(lambda: outcome(made, job) == "NODE_FAIL")
        heal(hosts.hosts[1])
        made.wait()
        until(lambda: not made.job_processes())
