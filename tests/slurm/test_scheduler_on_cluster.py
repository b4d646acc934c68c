"""SlurmScheduler and a real Slurm: refusals in its own words, a controller that is gone or hangs, odd paths."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.config.schema import SlurmConfig
from milabench.errors import Unreachable, UsageError
from milabench.schedulers.scheduler import JobHandle, JobRequest, JobText, job_name
from milabench.slurm.scheduler import SlurmScheduler
from milabench.slurm.script import batch_script
from tests.processes import until
from tests.slurm.cluster import CONTROLLER, Cluster, Settings, cluster, why_no_slurm

SMALL = SlurmConfig(exclusive=False, time="5")
SHORT_S = 2.0


def request(folder: Path, *command: str, slurm: SlurmConfig = SMALL, output: str = "out") -> JobRequest:
    marker = os.urandom(4).hex()
    job = JobText(marker=marker, share="s1", command=command or ("true",), output=folder / output)
    return JobRequest(name=job_name(marker, "s1"), script=batch_script(slurm, job), path=folder / "s1.sh")


def ended(scheduler: SlurmScheduler, handle: JobHandle) -> str:
    return until(lambda: scheduler.observe([handle])[handle.id].result, "the job ends")


@pytest.mark.parametrize(
    ("slurm_options", "reason"),
    [
        (replace(SMALL, partition="nope"), "Invalid partition name specified"),
        (replace(SMALL, partition="short"), "Requested time limit is invalid (missing or exceeds some limit)"),
        (
            replace(SMALL, partition="short", time="1", nodes=3),
            "Node count specification invalid|More processors requested",
        ),
        (replace(SMALL, nodes=9), "Requested node configuration is not available|More processors requested|Node count"),
        (replace(SMALL, gpus_per_node="3"), "Requested node configuration is not available"),
        (replace(SMALL, gpus_per_node="a100:1"), "Requested node configuration is not available|gres"),
        (replace(SMALL, constraint="nope"), "Invalid feature specification"),
        (replace(SMALL, nodelist="nope"), "Invalid node name specified"),
        (replace(SMALL, reservation="nope"), "Requested reservation is invalid"),
        (replace(SMALL, time="soon"), "Invalid --time specification"),
        (replace(SMALL, extra=("--nope",)), "unrecognized option '--nope'"),
        (replace(SMALL, extra=("--mem=1T",)), "Memory specification can not be satisfied"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_is_one_line_with_slurms_own_reason(
    slurm: Cluster, shared: Path, slurm_options: SlurmConfig, reason: str
) -> None:
    with pytest.raises(UsageError) as error:
        SlurmScheduler(os.environ).submit([request(shared, slurm=slurm_options)])
    assert re.fullmatch(r"job mb-\w+-s1: Slurm refused it: .+", str(error.value))
    assert any(part in str(error.value) for part in reason.split("|")), str(error.value)
    assert error.value.exit_code == 2


def test_a_script_that_is_too_large_is_refused(slurm: Cluster, shared: Path) -> None:
    with pytest.raises(UsageError, match=r"^job mb-\w+-s1: Slurm refused it: .*too (long|large|big)"):
        SlurmScheduler(os.environ).submit([request(shared, "true", "x" * 5_000_000)])


def test_options_paths_and_words_reach_the_job_as_they_are(slurm: Cluster, shared: Path) -> None:
    folder = shared / "100%j of it's #1, $HOME"
    folder.mkdir()
    scheduler = SlurmScheduler(os.environ | {"SBATCH_PARTITION": "short", "SBATCH_JOB_NAME": "x", "SBATCH_WAIT": "1"})
    words = ("a b", "$HOME", "it's", "#", '"', "ü", "*")
    asked = replace(SMALL, partition="all", extra=("--switches=1", "--export=ALL,ODD=it's a #"))
    [handle] = scheduler.submit([request(folder, "printf", "[%s]", *words, slurm=asked, output="s1 %a.out")])
    assert ended(scheduler, handle) == "completed"
    assert (folder / "s1 %a.out").read_text() == "".join(f"[{word}]" for word in words)


def test_a_job_has_exclusive_nodes_with_their_devices_and_all_their_memory(slurm: Cluster, shared: Path) -> None:
    scheduler = SlurmScheduler(os.environ)
    asked = SlurmConfig(nodes=2, gpus_per_node="2", time="5")
    show = "echo $SLURM_JOB_NUM_NODES $SLURM_CPUS_ON_NODE $CUDA_VISIBLE_DEVICES; scontrol show job $SLURM_JOB_ID"
    [handle] = scheduler.submit([request(shared, "sh", "-c", show, slurm=asked)])
    assert ended(scheduler, handle) == "completed"
    text = (shared / "out").read_text()
    assert text.startswith("2 4 0,1\n")
    assert "Requeue=0" in text
    assert re.search(r"TRES=cpu=8,mem=8000M,node=2", text)
    assert len(scheduler.observe([handle])[handle.id].nodes) == 2


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of one node, whose daemons a test may end."""
    if (why := why_no_slurm()) is not None:
        pytest.skip(why)
    with cluster(Settings(nodes=1)) as made:
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.mark.e2e
@pytest.mark.long
def test_a_controller_that_hangs_or_is_gone_ends_no_job(fragile: Cluster, shared: Path) -> None:
    scheduler = SlurmScheduler(os.environ, timeout_s=SHORT_S)
    [handle] = scheduler.submit([request(shared, "sleep", "600")])

    def phase() -> str:
        return scheduler.observe([handle])[handle.id].phase

    until(lambda: phase() == "running")
    pid = int((fragile.folder / "pids" / CONTROLLER).read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        state = scheduler.observe([handle])[handle.id]
        assert (state.phase, state.reason) == ("unknown", "squeue did not answer within 2 s")
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: phase() == "running")
    fragile.stop(CONTROLLER)
    try:
        assert phase() == "unknown"
        with pytest.raises(Unreachable, match=r"^job mb-\w+-s1: sbatch"):
            scheduler.submit([request(shared)])
        with pytest.raises(Unreachable, match=r"^s"):
            scheduler.adopt("m1")
        with pytest.raises(Unreachable, match=r"^scancel"):
            scheduler.cancel([handle])
    finally:
        fragile.start(CONTROLLER)
    until(lambda: phase() == "running")
    scheduler.cancel([handle])
    assert ended(scheduler, handle) == "cancelled"


@pytest.mark.slow
def test_a_job_that_the_controller_has_forgotten_is_known_from_the_accounting(
    monkeypatch: pytest.MonkeyPatch, shared: Path
) -> None:
    if (why := why_no_slurm(accounting=True)) is not None:
        pytest.skip(why)
    with cluster(Settings(nodes=1, accounting=True, min_job_age_s=2)) as made:
        scheduler = SlurmScheduler(os.environ | made.environ)
        [handle] = scheduler.submit([request(shared, "sh", "-c", "exit 3")])
        state = until(
            lambda: (state := scheduler.observe([handle])[handle.id]).witness == "sacct" and state,
            "the controller forgets it",
        )
        assert (state.phase, state.result, state.exit_code, state.nodes) == ("ended", "failed", 3, ("n1",))
        marker = handle.name.split("-")[1]
        assert scheduler.adopt(marker) == [handle]
