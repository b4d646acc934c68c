"""Slurm as a batch scheduler, by its commands: sbatch, squeue, sacct, scontrol and scancel.

No single answer of theirs ends a job unseen.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeGuard

from milabench.errors import RecordError, Unreachable, UsageError, os_reason
from milabench.events.atomic_write import replace_file
from milabench.facts.allocated_nodes import Allocation
from milabench.plan.system import nodes_in
from milabench.schedulers.scheduler import UNKNOWN_STATE, JobHandle, JobRequest, JobState, JobText, Scheduler, job_name
from milabench.slurm.answers import (
    MAX_LISTED,
    SACCT_FORMAT,
    SEPARATOR,
    SQUEUE_FORMAT,
    JobRow,
    Rows,
    by_id,
    lines,
    read_sacct,
    read_scontrol,
    read_sinfo,
    read_squeue,
)
from milabench.slurm.commands import Answer, Commands, NoAnswer
from milabench.slurm.job_variables import allocation_of
from milabench.slurm.script import batch_script, script_options

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig

COMMAND_S: Final = 20.0
SUBMIT_TIMES: Final = 3  # a busy controller makes sbatch wait for longer than any other command
LOOKS: Final = (0.0, 0.1, 0.25)  # pauses before looking for a job that may have been submitted, in timeouts
CANCELLED_AT_ONCE: Final = 100
SHOWN_AT_ONCE: Final = 8  # scontrol answers for one job at a time
REMEMBERED: Final = "now-30days"

SINFO_FORMAT: Final = SEPARATOR.join(("%P", "%N", "%T"))

_UNUSABLE = re.compile("down|drain|fail|error|unknown", re.I)
_JOB_ID = re.compile(r"[0-9]+(?:;[\w.-]+)?")
_NO_CONTACT = re.compile(
    "timed out|zero bytes|unable to contact|connect failure|connection refused|communication|temporarily unable", re.I
)
_IS_NOT_THERE = re.compile(r"^(.*error: Invalid job id.*|Job [0-9_+]+ not found)$", re.M)
_HAS_ENDED = re.compile("already complet|already finished|invalid job id", re.I)


class SlurmScheduler:
    """A `Scheduler` that asks Slurm. `environ` are the variables of its commands. Each is given `timeout_s` seconds.

    `say` gets a line when a command does not answer for some seconds.
    A job's id is sbatch's (`12`, `12_3`). On another cluster than the default it keeps the cluster as sbatch writes it, `12;b`.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        timeout_s: float = COMMAND_S,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._commands = Commands(environ, timeout_s, say)
        self._has_accounting = True
        self._turn = 0
        self._cancelled: set[str] = set()

    def submit(self, jobs: Sequence[JobRequest]) -> list[JobHandle]:
        """Submit jobs in order. See `Scheduler.submit`."""
        return [handle for job in jobs for handle in self._submit(job)]

    def observe(self, handles: Sequence[JobHandle], *, is_doubted: bool = False) -> Mapping[str, JobState]:
        """Return the state of each job. See `Scheduler.observe`.

        squeue is asked first, for all jobs of the user: asked for jobs by id it fails when it has forgotten any of
        them. For jobs that it does not know, and for exit codes, sacct is asked, whose reported ends alone are
        believed, then scontrol. A doubtful end from squeue is checked with scontrol, then with sacct.
        """
        states: dict[str, JobState] = {}
        for cluster, group in _by_cluster(handles):
            states |= self._confirm(cluster, group) if is_doubted else self._observe(cluster, group)
        return states

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """End jobs. See `Scheduler.cancel`. Raises UsageError with Slurm's reason where it refuses."""
        for cluster, group in _by_cluster(handles):
            ids = self._to_cancel(cluster, group)
            for first in range(0, len(ids), CANCELLED_AT_ONCE):
                answer = self._commands.ask("scancel", *_at(cluster), *ids[first : first + CANCELLED_AT_ONCE])
                errors = "\n".join(line for line in answer.errors.splitlines() if not _HAS_ENDED.search(line))
                if answer.code and errors:
                    kind = Unreachable if _NO_CONTACT.search(errors) else UsageError
                    raise kind(f"scancel: {replace(answer, errors=errors).reason}")

    def _to_cancel(self, cluster: str, handles: Sequence[JobHandle]) -> list[str]:
        """Return the ids to cancel: an array as a whole where all its unfinished tasks are to end.

        The controller keeps no record of a waiting task that is cancelled alone, but it does of the tasks of a cancelled array.
        """
        ids = [_plain(handle.id) for handle in handles]
        if not any("_" in id_ for id_ in ids):
            return ids
        try:
            rows = self._squeue(cluster).rows
        except Unreachable:
            return ids
        waiting = {row.id for row in rows if row.state.phase == "pending"}
        self._cancelled |= {handle.id for handle in handles if _plain(handle.id) in waiting}
        arrays = {id_.partition("_")[0] for id_ in ids if "_" in id_}
        arrays -= {row.id.partition("_")[0] for row in rows if row.state.phase != "ended" and row.id not in ids}
        return list(dict.fromkeys(array if (array := id_.partition("_")[0]) in arrays else id_ for id_ in ids))

    def adopt(self, marker: str) -> list[JobHandle]:
        """Return the jobs of a run. See `Scheduler.adopt`. Only the default cluster is asked."""
        rows = list(self._squeue("").rows)
        past = self._sacct("", f"--user={os.getuid()}", f"--starttime={REMEMBERED}")
        rows = [*(past.rows if past else ()), *rows]
        names = {row.id: row.name for row in rows if row.name.startswith(job_name(marker, ""))}
        return [JobHandle(id=id_, name=name) for id_, name in names.items()]

    def nodes(self, partition: str, exclude: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
        """Return the nodes of a partition, by default of the default partition, and the nodes that take no job, with their state.

        Raises UsageError with Slurm's reason, Unreachable when it does not answer.
        """
        which = (f"--partition={partition}",) if partition else ()
        answer = self._commands.ask("sinfo", "--noheader", "--Node", f"--format={SINFO_FORMAT}", *which)
        if answer.code:
            kind = Unreachable if _NO_CONTACT.search(answer.errors) else UsageError
            raise kind(f"sinfo: {answer.reason}")
        rows = read_sinfo(answer.output)
        if rows is None:
            raise Unreachable(f"sinfo: its answer names more than {MAX_LISTED} nodes")
        if not partition and any(name.endswith("*") for name, _, _ in rows):
            rows = [row for row in rows if row[0].endswith("*")]
        states = {node: state for _, node, state in rows if node not in exclude}
        unusable = {node: state for node, state in states.items() if _UNUSABLE.match(state) or state.endswith("*")}
        return [node for node in states if node not in unusable], unusable

    def _submit(self, job: JobRequest) -> list[JobHandle]:
        try:
            replace_file(job.path, job.script.encode())
        except OSError as error:
            raise RecordError(f"{job.path}: {os_reason(error)}") from None
        # The script's options once more: on the command line they win over a user's SBATCH_ variables.
        words = script_options(job.script)
        if job.after:
            words.append(f"--dependency=afterany:{':'.join(_plain(id_) for id_ in job.after)}")
        if job.tasks:
            words.append(f"--array=0-{job.tasks - 1}{f'%{job.at_once}' if job.at_once else ''}")
        limit_s = SUBMIT_TIMES * self._commands.timeout_s
        try:
            answer = self._commands.ask("sbatch", *words, str(job.path), timeout_s=limit_s)
        except NoAnswer as error:
            reason, submitted = str(error), ""
        else:
            reason, submitted = f"sbatch: {answer.reason}", _submitted(answer)
            if not submitted and answer.code and not _NO_CONTACT.search(answer.errors):
                raise UsageError(f"job {job.name}: Slurm refused it: {answer.reason}")
        submitted = submitted or self._look_for(job)
        if not submitted:
            raise Unreachable(f"job {job.name}: {reason}. Slurm knows no job of that name")
        return _handles(job, submitted)

    def _look_for(self, job: JobRequest) -> str:
        """Return the id of a job that was not heard of again when it was submitted. Empty where there is none."""
        for pause in LOOKS:
            time.sleep(pause * self._commands.timeout_s)
            try:
                rows = self._squeue("").rows
            except Unreachable:
                continue
            # One that has ended meanwhile, too: no two submissions of a run have the same name.
            ids = [row.id for row in rows if row.name == job.name]
            if ids:
                return max((re.split("[_+]", id_)[0] for id_ in ids), key=int)
        return ""

    def _observe(self, cluster: str, handles: Sequence[JobHandle]) -> dict[str, JobState]:
        witnesses = [self._ask_sacct, self._ask_scontrol]
        try:
            states = _states_in(self._squeue(cluster), handles)
        except Unreachable as error:
            states = {handle.id: _unknown(str(error), "squeue") for handle in handles}
            witnesses.remove(self._ask_scontrol)  # it asks the same controller
        for ask in witnesses:
            open_ = [handle for handle in handles if _is_incomplete(states[handle.id])]
            for handle, answer in ask(cluster, open_) if open_ else ():
                states[handle.id] = _weighed(states[handle.id], answer)
        for handle in handles:
            if states[handle.id].phase == "absent" and handle.id in self._cancelled:
                states[handle.id] = JobState(phase="ended", result="cancelled", state="CANCELLED", witness="scancel")
        return states

    def _confirm(self, cluster: str, handles: Sequence[JobHandle]) -> dict[str, JobState]:
        states = dict[str, JobState]()
        for ask in (self._ask_scontrol, self._ask_sacct):
            open_ = [each for each in handles if states.get(each.id, UNKNOWN_STATE).phase in ("absent", "unknown")]
            states |= {handle.id: state for handle, state in (ask(cluster, open_) if open_ else ())}
        return states

    def _ask_sacct(self, cluster: str, handles: Sequence[JobHandle]) -> Iterator[tuple[JobHandle, JobState]]:
        """Ask for these jobs. It may be late, and report an ended job as running: only its reported ends are believed."""
        past = self._sacct(cluster, f"--jobs={','.join(_plain(handle.id) for handle in handles)}")
        if past is None and not self._has_accounting:
            return
        states = _states_in(past, handles) if past is not None else {}
        for handle in handles:
            state = states.get(handle.id) or _unknown("sacct did not answer", "sacct")
            yield handle, state if state.phase in ("ended", "absent") else replace(state, phase="unknown", result="")

    def _squeue(self, cluster: str) -> Rows:
        """Ask for all jobs of the user. Raises Unreachable."""
        # Not its JSON, which differs from release to release, and is a hundred times as long.
        words = (f"--user={os.getuid()}", "--all", "--states=all", "--array", "--noheader", f"--format={SQUEUE_FORMAT}")
        answer = self._commands.ask("squeue", *_at(cluster), *words)
        if answer.code:
            raise Unreachable(f"squeue: {answer.reason}")
        rows = read_squeue(answer.output)
        if not rows.rows and not rows.whole:
            raise Unreachable("squeue: its answer cannot be read")
        return replace(rows, whole=rows.whole and "error" not in answer.errors)

    def _sacct(self, cluster: str, *which: str) -> Rows | None:
        """Ask the accounting. None when there is none, or it does not answer."""
        if not self._has_accounting:
            return None
        form = ("--allocations", "--parsable2", "--noheader", f"--delimiter={SEPARATOR}", f"--format={SACCT_FORMAT}")
        try:
            answer = self._commands.ask("sacct", *_at(cluster), *which, *form)
        except NoAnswer:
            return None
        except Unreachable:  # no sacct here
            self._has_accounting = False
            return None
        if "accounting storage is disabled" in answer.errors:
            self._has_accounting = False
        return read_sacct(answer.output) if answer.code == 0 else None

    def _ask_scontrol(self, cluster: str, handles: Sequence[JobHandle]) -> Iterator[tuple[JobHandle, JobState]]:
        """Ask for some of these jobs, others every time, for as long as a command may take."""
        deadline = time.monotonic() + self._commands.timeout_s
        first = self._turn % len(handles) if handles else 0
        self._turn += SHOWN_AT_ONCE
        for handle in [*handles[first:], *handles[:first]][:SHOWN_AT_ONCE]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            words = (*_at(cluster), "--oneliner", "show", "job", _plain(handle.id))
            try:
                answer = self._commands.ask("scontrol", *words, timeout_s=left_s)
            except Unreachable as error:
                yield handle, _unknown(str(error), "scontrol")
                return
            if _IS_NOT_THERE.search(answer.output + answer.errors):
                yield handle, JobState(phase="absent", witness="scontrol")
            elif answer.code == 0:
                yield handle, _states_in(read_scontrol(answer.output), [handle])[handle.id]
            else:
                yield handle, _unknown(f"scontrol: {answer.reason}", "scontrol")


def _submitted(answer: Answer) -> str:
    """Return the id that sbatch prints, after possible output of a site's plugins. Empty where there is none."""
    ids = [line.strip() for line in lines(answer.output) if _JOB_ID.fullmatch(line.strip())]
    return ids[-1] if ids and answer.code == 0 else ""


def _handles(job: JobRequest, id_: str) -> list[JobHandle]:
    number, separator, cluster = id_.partition(";")
    ids = [f"{number}_{task}" for task in range(job.tasks)] if job.tasks else [number]
    return [JobHandle(id=each + separator + cluster, name=job.name) for each in ids]


def _by_cluster(handles: Iterable[JobHandle]) -> Iterator[tuple[str, list[JobHandle]]]:
    groups: dict[str, list[JobHandle]] = {}
    for handle in handles:
        groups.setdefault(handle.id.partition(";")[2], []).append(handle)
    yield from groups.items()


def _at(cluster: str) -> tuple[str, ...]:
    return (f"--clusters={cluster}",) if cluster else ()


def _plain(id_: str) -> str:
    return id_.partition(";")[0]


def _states_in(answer: Rows, handles: Iterable[JobHandle]) -> dict[str, JobState]:
    """Return an answer's state of each job. An unknown job is absent if the whole answer could be read."""
    rows = by_id(answer.rows)
    # What is left of an array whose waiting tasks were cancelled is one row.
    arrays = {row.id: row for row in answer.rows if row.state.phase == "ended"}
    silent = JobState(phase="absent") if answer.whole else _unknown("a part of its answer cannot be read", "")
    found = {
        handle.id: rows.get(id_ := _plain(handle.id)) or ("_" in id_ and arrays.get(id_.partition("_")[0])) or None
        for handle in handles
    }
    return {handle.id: row.state if _is_of(row := found[handle.id], handle) else silent for handle in handles}


def _is_incomplete(state: JobState) -> bool:
    """Return whether another source may say more of a job: squeue knows no exit codes."""
    return state.phase in ("absent", "unknown") or (state.result == "failed" and state.exit_code is None)


def _weighed(before: JobState, now: JobState) -> JobState:
    """Return the state after another source: an end stays one, and a job is absent only where every source answered."""
    if before.phase == "ended":
        # sacct knows no reason.
        return replace(now, reason=now.reason or before.reason) if now.phase == "ended" else before
    if now.phase == "unknown" and not now.state and before.phase == "unknown":
        return before
    return before if now.phase == "absent" and before.phase == "unknown" else now


def _is_of(row: JobRow | None, handle: JobHandle) -> TypeGuard[JobRow]:
    """Whether a row is of this job: a cluster that has lost its state gives the ids out again."""
    return row is not None and (not handle.name or row.name == handle.name)


def _unknown(reason: str, witness: str) -> JobState:
    return JobState(phase="unknown", reason=reason, witness=witness)


class SlurmJobs:
    """`JobSystem` of Slurm."""

    def connect(self, *, timeout_s: float | None = None, say: Callable[[str], object] = lambda _: None) -> Scheduler:
        """Return the Slurm of this machine."""
        return SlurmScheduler(os.environ, COMMAND_S if timeout_s is None else timeout_s, say)

    def script(self, system: SystemConfig, job: JobText) -> str:
        """Return the batch script of a job.

        A job that was planned for nodes of `slurm.nodelist` runs on these. Any other runs on the planned number of nodes.
        """
        options = replace(system.slurm, nodes=len(job.nodes))
        if set(nodes_in(system.slurm.nodelist, "nodelist")).issuperset(job.nodes):
            options = replace(options, nodelist=",".join(job.nodes), exclude="")
        return batch_script(options, job)

    def allocation(self, environ: Mapping[str, str]) -> Allocation | None:
        """Return the nodes of the job that these variables are of. See `JobSystem.allocation`."""
        return allocation_of(environ)

    def job_id(self, environ: Mapping[str, str]) -> str:
        """Return the id of that job."""
        array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
        return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")


SLURM = SlurmJobs()


def nodes_of_partition(
    partition: str, excluded: tuple[str, ...], say: Callable[[str], object]
) -> tuple[list[str], dict[str, str]]:
    """Return the nodes of a partition that take jobs, and the state of those that do not."""
    return SlurmScheduler(os.environ, say=say).nodes(partition, excluded)
