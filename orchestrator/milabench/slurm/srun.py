"""Commands on the nodes of a Slurm job, by srun: each is a step of the job, in parallel with its running steps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Mapping

from milabench.devices.registry import VENDORS
from milabench.errors import Unreachable
from milabench.events.model import Why
from milabench.execute.command_channel import CommandChannel, end_of, start_command
from milabench.execute.ssh import Address, last_words
from milabench.schedulers.scheduler import UNKNOWN_STATE, WHY_OF_RESULT, JobHandle, JobState
from milabench.slurm.scheduler import SLURM

END_S = 0.6  # for srun to end the step that it is asked to end
SETTLED_S = 5.0  # within which Slurm knows why it ended a step
ASK_EVERY_S = 1.0
# What srun says besides: not why anything ended.
_NOISE = ("lacks support for cpu binding", "Waiting up to ", "task 0: ")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")


class SrunChannel(CommandChannel):
    """A command that srun started as a step of a job."""

    program = "srun"

    def last_stderr_line(self) -> str:
        """Return the last line on the standard error of srun that says something of the step."""
        lines = self._words.splitlines()
        return last_words(b"\n".join(line for line in lines if not any(noise.encode() in line for noise in _NOISE)))


class SrunConnection:
    """A node of a job. Nothing is kept open between its commands."""

    lost: str | None = None
    is_our_file_system = True

    def __init__(self, address: Address) -> None:
        self._address = address
        self._children: list[asyncio.subprocess.Process] = []

    async def start(self, command: str) -> SrunChannel:
        """Start a line of /bin/sh. Raises Unreachable."""
        words = (*srun_command(self._address), "/bin/sh", "-c", command)
        process = await start_command(words, srun_environment(os.environ))
        self._children.append(process)
        return SrunChannel(process)

    async def close(self) -> None:
        """End all that runs over it."""
        await asyncio.gather(*(_ended(child) for child in self._children if child.returncode is None))


def srun_command(address: Address) -> tuple[str, ...]:
    """Return the command that starts another command on a node of a job, without taking resources from its steps."""
    job, _, cluster = address.job.partition(";")
    job, _, component = job.partition("+")
    return (
        "srun",
        *((f"--clusters={cluster}",) if cluster else ()),
        *((f"--het-group={component}",) if component else ()),
        *(f"--jobid={job}", f"--nodelist={address.host}", "--overlap", "--nodes=1", "--ntasks=1"),
        *("--mem=0", "--cpu-bind=none", "--mpi=none", "--chdir=/", "--quiet", "--job-name=milabench"),
    )


def srun_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of srun and its programs: the variables of our own job step do not apply to the new step.

    SLURM_NTASKS would start many agents, SLURM_CPU_BIND pin them. Slurm sets the visible devices on each node.
    """
    devices = {name for vendor in VENDORS for name in vendor.visible_variables}
    return {
        name: value
        for name, value in environ.items()
        if (not name.startswith(("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "PMI_", "PMIX_")) or name in _KEPT)
        and name not in devices
    }


async def connect_srun(address: Address) -> SrunConnection:
    """Return the connection to a node of a job. The first command shows whether it works. Raises Unreachable without srun."""
    if shutil.which("srun") is None:
        raise Unreachable(f"{address.name}: no srun on PATH, and its node belongs to Slurm's job {address.job}")
    return SrunConnection(address)


async def describe_job_loss(job: str, how: str) -> tuple[str, Why]:
    """Return why an agent in a job was lost, for a person and as a word: `how` it was lost, and Slurm's state of its job."""
    by = time.monotonic() + SETTLED_S
    while True:
        state = await asyncio.to_thread(state_of_job, job)
        if state.phase not in ("running", "pending") or state.result or time.monotonic() >= by:
            break
        # The step ends before its job says how it did.
        await asyncio.sleep(ASK_EVERY_S)
    why = WHY_OF_RESULT.get(state.result, "lost-node")
    return f"{how}; {job_text(job, state)}", why


def state_of_job(job: str) -> JobState:
    """Return Slurm's present state of a job."""
    return states_of_jobs(job).get(job, UNKNOWN_STATE)


def states_of_jobs(*jobs: str) -> Mapping[str, JobState]:
    """Return Slurm's present states of jobs by their ids, without those that it does not know."""
    return SLURM.connect().observe([JobHandle(id=job, name="") for job in jobs])


def job_text(job: str, state: JobState) -> str:
    """Return a job with its state, reason and nodes, in Slurm's words."""
    if state.phase in ("absent", "unknown"):
        return f"job {job}: Slurm {'no longer knows it' if state.phase == 'absent' else 'does not answer'}"
    reason = f" ({state.reason})" if state.reason not in ("", "None") else ""
    nodes = f" on {','.join(state.nodes)}" if state.nodes else ""
    return f"job {job} is {state.state or state.phase}{reason}{nodes}"


async def _ended(child: asyncio.subprocess.Process) -> None:
    """End srun, which ends its step. Kill it where it does not."""
    for stop in (child.terminate, child.kill):
        with contextlib.suppress(ProcessLookupError):
            stop()
        if await end_of(child, END_S):
            return
