"""Finds runs by name or path, with their status and the orchestrator that executes them now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milabench.analysis.run_status import RunStatus, run_status
from milabench.errors import NothingSelected, RecordError, os_reason
from milabench.events.attempts import Attempt, attempts
from milabench.events.rundir import Run, open_run
from milabench.events.runs_folder import find_run, latest_run
from milabench.execute.agent.outcome import MACHINE_KILLS, oom_kills
from milabench.execute.locks import Orchestrator, holder_of, orchestrator_of, share_holder
from milabench.shown import some_of
from milabench.workflow.files import base_folder
from milabench.workflow.recorded_nodes import RecordedAllocation, recorded_allocation

ACTIVE_STATES = ("running", "submitted")
"""The states of a run that something is executing, or will: a scheduler that has its jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHandle:
    """A run, its status, and the orchestrator that executes it at this moment.

    `workers` are the processes of its jobs, by share.
    """

    run: Run
    status: RunStatus
    holder: Orchestrator | None
    workers: Mapping[str, Orchestrator] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Whether a process writes its records at this moment."""
        return self.holder is not None or bool(self.workers)

    @property
    def executed_by(self) -> str:
        """The processes that execute it: its orchestrator, else its jobs."""
        if self.holder is not None:
            return f"process {self.holder.pid}"
        jobs = [share.job.id for name, share in self.run.shares.items() if share.job and name in self.workers]
        return f"job{'s' * (len(jobs) > 1)} {', '.join(jobs[:3])}{' and others' if len(jobs) > 3 else ''}"

    @property
    def state(self) -> str:
        """`running`, the verdict, `submitted` while jobs wait, or `cut off`, in JSON, when nothing executes or ended it.

        Whether the scheduler still has a job that waits, only it knows.
        """
        if self.is_active:
            return "running"
        if any(share.is_waiting for share in self.run.shares.values()):
            return "submitted"
        return self.status.verdict or ("cut off" if self.run.journal else "not recorded")

    @property
    def state_text(self) -> str:
        """The state for a person."""
        return "incomplete" if self.state == "cut off" else self.state

    @property
    def allocation(self) -> RecordedAllocation | None:
        """The nodes of Slurm that its last orchestrator used."""
        return recorded_allocation(self.run)

    @property
    def kills_for_memory(self) -> int:
        """How often the kernel has killed for lack of memory since the orchestrator of an incomplete run began."""
        entries = (entry for entry in reversed(self.run.transitions) if entry.get("run") == "started")
        began: Mapping[str, Any] = next(entries, {})
        last = orchestrator_of(began) if self.state == "cut off" else None
        before, now = began.get("oom_kills"), oom_kills(MACHINE_KILLS)
        if last is None or not (last.is_local and last.is_of_this_boot) or before is None or now is None:
            return 0
        return int(now - before)

    @property
    def running(self) -> tuple[Attempt, ...]:
        """The attempts that run at this moment: begun, not ended, and their orchestrator or job lives."""
        if self.holder is not None and not self.run.shares:
            return self.status.running
        own = {step for name in self.workers for step in self.run.shares[name].steps}
        return tuple(tried for tried in self.status.running if tried.step in own)

    @property
    def is_detached(self) -> bool:
        """Whether it is executed without a terminal at this moment."""
        return self.holder is not None and self.holder.detached


def run_handle(run: Run) -> RunHandle:
    """Return a run with its status."""
    began = [share.name for share in run.shares.values() if share.is_begun and not share.is_ended]
    workers = {name: worker for name in began if (worker := share_holder(run.path, name)) is not None}
    return RunHandle(run=run, status=run_status(run), holder=holder_of(run.path), workers=workers)


def resolve_run(base: Path | None, name: str | None) -> RunHandle:
    """Return the run of this name or path, else the latest. Raises NothingSelected and RecordError."""
    folder = base_folder(base)
    return run_handle(find_run(folder, name) if name is not None else latest_run(folder))


def all_runs(base: Path | None) -> list[RunHandle]:
    """Return every run below a base, oldest first, also those that crashed before anything was recorded."""
    folder = base_folder(base) / "runs"
    try:
        paths = [path for path in folder.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"{folder}: cannot be read: {os_reason(error)}") from None
    handles = []
    for path in paths:
        try:
            handles.append(run_handle(open_run(path)))
        except RecordError:
            continue  # another folder, or a run that crashed before its manifest
    # Not by name or file times: a name need not contain the time, and a copy has new ones.
    return sorted(handles, key=lambda handle: (handle.status.began or 0.0, handle.run.name))


def last_attempt(run: Run, step: str, known: int) -> int:
    """Return the number of the newest attempt at a step that left a file, and at least the `known` number."""
    while (run.path / f"{run.stem(step, known + 1)}.data").exists():
        known += 1
    return known


def attempts_made(run: Run, steps: Iterable[str]) -> dict[str, int]:
    """Return how many attempts at each step left a trace, in the journal or only a file: a crash may have come in between."""
    journaled = attempts(run.journal)
    numbers = {step: [attempt.number for attempt in journaled.get(step, ())] for step in steps}
    return {step: last_attempt(run, step, max(known, default=0)) for step, known in numbers.items()}


def find_step(run: Run, name: str) -> tuple[str, list[str]]:
    """Return the step of this id, file name or benchmark's name, of several the last that wrote, and the others.

    Raises NothingSelected where there is none.
    """
    if name in run.files:
        return name, []
    near = [step for step, stem in run.files.items() if stem == name or step.startswith(f"{name}.")]
    if not near:
        raise NothingSelected(f"{run.name}: unknown step '{name}'. Known: {some_of(list(run.files), 8)}")

    def written(step: str) -> float:
        try:
            return (run.path / f"{run.stem(step, last_attempt(run, step, 1))}.data").stat().st_mtime
        except OSError:
            return 0.0

    last = max(near, key=written)
    return last, [step for step in near if step != last]
