"""The nodes of Slurm that a run uses: of the current allocation, or of a job that is asked for and holds them.

A lease ends that job when nobody claims its nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.devices.regular_file import read_regular
from milabench.errors import ConfigError, MilabenchError, Unreachable, UsageError, os_reason
from milabench.events.atomic_write import write_output
from milabench.events.removal import remove
from milabench.events.rundir import Run
from milabench.events.wire import parse_object
from milabench.execute.heartbeat import is_beating
from milabench.execute.interrupts import interrupts, repeated
from milabench.execute.locks import Orchestrator, orchestrator_of, this_orchestrator
from milabench.facts.allocated_nodes import AllocatedNode, Allocation
from milabench.schedulers.scheduler import UNKNOWN_STATE, JobHandle, JobRequest, JobState, JobText, Scheduler, job_name
from milabench.slurm.scheduler import SLURM
from milabench.slurm.script import batch_script
from milabench.slurm.srun import job_text
from milabench.workflow.files import base_folder
from milabench.workflow.options import Session, SuiteOptions
from milabench.workflow.recorded_nodes import SHARE, DeadRequest, RecordedAllocation, recorded_allocation

if TYPE_CHECKING:
    from milabench.config.schema import SlurmConfig, SystemConfig

LEASE_S = 120.0
"""After which an allocation ends that nobody has claimed again: its orchestrator was killed, or its machine."""
TOUCH_S = 10.0
OURS_S = 6.0  # for each command that is asked whether we are in a job: a run need not wait for a busy controller
FIRST_TOUCHES = 2
"""Minimum number of renewals of the lease after its job began. The process that requested the job may have died meanwhile."""
OWNER = "owner"
SETTLED_S = (0.0, 1.0, 3.0)  # pauses before looking for a job whose submission was interrupted
ABSENT_S = 90.0
FIRST_TICK_S, LAST_TICK_S = 0.2, 10.0
# Ends when the word in the lease has not changed for so long, also where it cannot be read: its nodes may not share the file.
# A word that can be read at the start, and then does not change for the shorter time, is that of somebody who is dead.
HOLDER = (
    'word=$(cat "$1" 2>/dev/null) || word=; idle=0; limit=${word:+$4}; '
    'while [ "$idle" -lt "${limit:-$2}" ]; do '
    'sleep "$3"; idle=$((idle + $3)); now=$(cat "$1" 2>/dev/null) || now=; '
    'if [ "$now" != "$word" ]; then word=$now; idle=0; limit=; fi; '
    'done; rm -rf -- "${1%/*}"'
)


def lease_s() -> float:
    """Return the seconds of the lease. Only tests use another than LEASE_S."""
    return float(os.environ.get("MILABENCH_ALLOCATION_LEASE_S", LEASE_S))


def touch_s() -> float:
    """Return the seconds after which the lease is touched again."""
    return min(TOUCH_S, lease_s() / 4)


class Lease:
    """A file whose word changes every TOUCH_S while we live. The job that holds the nodes ends when it does not.

    Next to it is our identity: nobody else can tell whether a process still waits for a job that has not begun.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._renewal = contextlib.ExitStack()

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "lease"

    def start(self) -> None:
        """Claim the nodes from now on."""
        with contextlib.suppress(OSError):
            owner = this_orchestrator(self.folder.name)
            write_output(self.folder / OWNER, json.dumps(owner.to_json()).encode() + b"\n")
        self.touch()
        self._renewal.enter_context(repeated(self.touch, touch_s(), "allocation lease"))

    def stop(self) -> None:
        """Claim them no more. Without another claim they are given back when the lease ends."""
        self._renewal.close()

    def touch(self) -> None:
        """Claim the nodes now. Raises nothing: a full disk must not end a run before the lease does."""
        with contextlib.suppress(OSError):
            write_output(self.path, secrets.token_hex(8).encode() + b"\n")


class HeldAllocation:
    """The nodes that a command uses. Where it has asked for them itself (`lease`), it claims them until it gives them back.

    `marker` is the job's, by which it is found again.
    """

    def __init__(self, nodes: Allocation, marker: str = "", lease: Lease | None = None) -> None:
        self.nodes = nodes
        self.marker = marker
        self.lease = lease

    def to_json(self) -> dict[str, object]:
        """Return its entry in the journal."""
        own = {"marker": self.marker} if self.lease is not None else {}
        return {"scheduler": "slurm", "job": self.nodes.job, **own, "nodes": [node.name for node in self.nodes.nodes]}

    def rest(self) -> None:
        """Let the nodes be claimed by nobody for a moment: a thread does not survive a fork."""
        if self.lease is not None:
            self.lease.stop()

    def go_on(self) -> None:
        """Claim the nodes again after `rest`."""
        if self.lease is not None:
            self.lease.start()

    def release(self) -> None:
        """Give the nodes back, unless they were ours before the command. Raises nothing: the lease ends them else."""
        if self.lease is None:
            return
        with interrupts().deferred():
            self.lease.stop()
            with contextlib.suppress(MilabenchError):
                SLURM.connect().cancel([JobHandle(id=self.nodes.job, name=job_name(self.marker, SHARE))])
            _remove(self.lease.folder)
            self.lease = None


def allocation_folder(base: Path, marker: str) -> Path:
    """Return the folder of the files needed while nodes are held."""
    return base / "allocations" / marker


def holder_script(slurm: SlurmConfig, base: Path, marker: str) -> str:
    """Return the batch script of a job that holds nodes for as long as somebody claims them."""
    lease = Lease(allocation_folder(base, marker))
    step_s = max(1, min(5, int(lease_s() / 4)))
    times = (str(int(seconds)) for seconds in (lease_s(), step_s, FIRST_TOUCHES * touch_s()))
    command = ("/bin/sh", "-c", HOLDER, "milabench", str(lease.path), *times)
    # Slurm would fail a job whose output cannot be opened on its node: whether the base is shared is asked, and said, later.
    job = JobText(marker=marker, share=SHARE, command=command, output=Path("/dev/null"))
    return batch_script(slurm, job)


def request_nodes(slurm: SlurmConfig, base: Path, session: Session) -> None:
    """Ask Slurm for nodes and wait until it gives them, for a session. An interrupt cancels the job, and so do several.

    Raises UsageError with Slurm's reason for a request that it refuses, Unreachable when it does not answer, or when the job
    ends before it has begun.
    """
    scheduler, say = SLURM.connect(say=session.info), session.info
    marker = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
    lease = Lease(allocation_folder(base, marker))
    folder, script = lease.folder, holder_script(slurm, base, marker)
    name = job_name(marker, SHARE)
    handle: JobHandle | None = None
    try:
        with interrupts().deferred():  # a thread that is interrupted while it starts cannot be waited for
            _make(folder)
            lease.start()
        [handle] = scheduler.submit([JobRequest(name=name, script=script, path=folder / "holder.sh")])
        say(f"slurm: job {handle.id} asks for {_wish(slurm)}")
        names = wait_for_nodes(scheduler, handle, say)
        lease.touch()  # what holds the nodes sees soon that we live
        # Not returned: an interrupt between here and our caller would lose it.
        session.allocation = HeldAllocation(allocation_with(handle.id, names), marker, lease)
    except BaseException as error:
        with interrupts().deferred():
            lease.stop()
            with contextlib.suppress(MilabenchError):
                if handle is None and isinstance(error, KeyboardInterrupt):
                    scheduler.cancel(_submitted(scheduler, marker))
                elif handle is not None:  # else it is said why there is none, and that was looked for
                    scheduler.cancel([handle])
            _remove(folder)
        raise


def _submitted(scheduler: Scheduler, marker: str) -> list[JobHandle]:
    """Return the job of a request that was interrupted: a controller may take it after its sbatch was ended."""
    for pause in SETTLED_S:
        time.sleep(pause)
        if jobs := scheduler.adopt(marker):
            return jobs
    return []


def allocation_with(job: str, names: Sequence[str]) -> Allocation:
    """Return the allocation of a job with these nodes."""
    return Allocation(job=job, nodes=tuple(AllocatedNode(name=name, job=job) for name in names))


def requests_of_dead_processes(base: Path) -> list[DeadRequest]:
    """Return the requests for nodes below a base that are ours and whose process is dead. Raises Unreachable.

    A process of another host counts as dead when it has not touched its lease for a minute.
    """
    dead = []
    for folder in sorted((base / "allocations").glob("*")):
        try:
            if folder.stat().st_uid != os.getuid():
                continue
        except OSError:  # given back meanwhile
            continue
        owner = _owner(folder)
        is_here = owner is not None and owner.is_local
        if owner.is_alive if owner is not None and is_here else is_beating(folder / "lease"):
            continue
        scheduler = SLURM.connect()
        jobs = scheduler.adopt(folder.name)
        states = scheduler.observe(jobs) if jobs else {}
        known = ((job, states.get(job.id, UNKNOWN_STATE)) for job in jobs)
        open_jobs = tuple((job, state) for job, state in known if state.phase not in ("ended", "absent"))
        dead.append(_dead_request(folder, owner, open_jobs))
    return dead


def _dead_request(folder: Path, owner: Orchestrator | None, jobs: Sequence[tuple[JobHandle, JobState]]) -> DeadRequest:
    whose = f"asked for by {owner or 'an unknown process'}, which is dead"
    open_jobs = " and ".join(job_text(handle.id, state) for handle, state in jobs)
    text = f"{open_jobs or f'{folder.name}: no job in the queue'}; nodes {whose}"
    return DeadRequest(folder=folder, jobs=tuple(handle for handle, _ in jobs), text=text)


def end_request(request: DeadRequest) -> None:
    """Cancel the job of a request whose process is dead, and forget it. Raises Unreachable."""
    if request.jobs:
        SLURM.connect().cancel(request.jobs)
    _remove(request.folder)


def _owner(folder: Path) -> Orchestrator | None:
    try:
        return orchestrator_of(parse_object(read_regular(folder / OWNER)))
    except (OSError, ValueError):
        return None


def _remove(folder: Path) -> None:
    remove(folder, is_quiet=True)
    with contextlib.suppress(OSError):  # that of all allocations, when it was the last
        folder.parent.rmdir()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot be made: {os_reason(error)}. Give a base that can be written with --base"
        ) from None


def _wish(slurm: SlurmConfig) -> str:
    count = f"{slurm.nodes} node{'s' * (slurm.nodes > 1)}" if slurm.nodes else "nodes" if slurm.nodelist else "a node"
    where = f" of partition {slurm.partition}" if slurm.partition else ""
    return count + where + (f" ({slurm.nodelist})" if slurm.nodelist else "")


def wait_for_nodes(scheduler: Scheduler, handle: JobHandle, say: Callable[[str], object]) -> tuple[str, ...]:
    """Return the nodes of a job once it has them. Report why it waits. Raises Unreachable when it has ended or is not known."""
    shown, tick_s, known_at = "", FIRST_TICK_S, time.monotonic()
    while True:
        state = scheduler.observe([handle]).get(handle.id, UNKNOWN_STATE)
        if state.phase == "running" and state.nodes:
            say(f"slurm: job {handle.id} has {', '.join(state.nodes)}")
            return state.nodes
        if state.phase == "ended":
            raise Unreachable(f"slurm: {job_text(handle.id, state)}. It has ended before it could be used")
        if state.phase != "absent":
            known_at = time.monotonic()
        elif time.monotonic() - known_at > ABSENT_S:
            raise Unreachable(f"slurm: job {handle.id} was submitted, and Slurm does not know it for {ABSENT_S:g} s")
        if state.phase in ("pending", "unknown") and (line := _pending_text(handle.id, state)) != shown:
            say(line)
            shown = line
        time.sleep(tick_s)
        tick_s = min(LAST_TICK_S, tick_s * 1.5)


def _pending_text(job: str, state: JobState) -> str:
    if state.phase == "unknown":
        return f"slurm: no answer about job {job}. Asking again"
    reason = state.reason if state.reason not in ("", "None") else "Slurm has not looked at it yet"
    return f"slurm: job {job} waits: {reason}. Ctrl-C cancels it"


def hold_nodes(system: SystemConfig, ours: Allocation | None, options: SuiteOptions, session: Session) -> None:
    """Let a session use the nodes of the job that we are in, else ask for some.

    Raises ConfigError, UsageError for options that Slurm refuses, and Unreachable.
    """
    if ours is not None:
        require_given(ours, session)
        session.allocation = HeldAllocation(ours)
    else:
        slurm = system.slurm
        if wanted := session.wanted_nodes:
            slurm = replace(slurm, nodelist=",".join(wanted), nodes=len(wanted))
        request_nodes(slurm, base_folder(options.base), session)


def require_given(allocation: Allocation, session: Session) -> None:
    """Raise UsageError where Slurm reports that our variables belong to an ended job. No answer proves nothing."""
    job = allocation.job
    handle = JobHandle(id=job, name="")
    state = SLURM.connect(say=session.info, timeout_s=OURS_S).observe([handle]).get(job, UNKNOWN_STATE)
    if state.phase in ("absent", "ended"):
        what = "Slurm knows no such job" if state.phase == "absent" else job_text(job, state)
        raise UsageError(
            f"SLURM_JOB_ID={job}: {what}: the variables of this shell name no current allocation. Unset them, or"
            " --engine local runs on this machine alone"
        )


def jobs_that_hold(recorded: Sequence[RecordedAllocation]) -> list[RecordedAllocation]:
    """Return those whose jobs still hold their nodes, or may: Slurm is asked once."""
    states = SLURM.connect().observe([allocation.handle for allocation in recorded])
    return [each for each in recorded if states.get(each.job, UNKNOWN_STATE).phase not in ("ended", "absent")]


def give_back(allocation: RecordedAllocation) -> None:
    """Cancel the job that still holds the nodes of a run without an orchestrator. Raises Unreachable."""
    SLURM.connect().cancel([allocation.handle])
    _remove(allocation_folder(allocation.run.parent.parent, allocation.marker))


def claim_recorded(run: Run, session: Session, *, force: bool) -> None:
    """Let a run be resumed on the nodes that it had: claim them where their job lives, else ask for the same, with `force` any.

    Raises Unreachable when Slurm does not answer.
    """
    recorded = recorded_allocation(run)
    if recorded is None or not recorded.marker or session.allocation is not None:
        return
    state = SLURM.connect().observe([recorded.handle]).get(recorded.job, UNKNOWN_STATE)
    if state.phase == "unknown":
        raise Unreachable(
            f"{run.path}: Slurm does not answer about job {recorded.job}, which may still hold its nodes. Try again"
        )
    if state.phase in ("running", "pending"):
        nodes = state.nodes or recorded.nodes
        lease = Lease(allocation_folder(run.path.parent.parent, recorded.marker))
        lease.start()  # before it ends: the orchestrator that claimed them is dead
        session.allocation = HeldAllocation(allocation_with(recorded.job, nodes), recorded.marker, lease)
        session.info(f"resume: Slurm's job {recorded.job} still holds {', '.join(recorded.nodes)}")
    elif not force:
        session.wanted_nodes = recorded.nodes
