"""Slurm by its commands: sbatch, squeue, sacct, scontrol and scancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milabench.execute.scheduler import JobHandle, JobRequest, JobState

COMMAND_S = 20.0


class SlurmScheduler:
    """A `Scheduler` that asks Slurm. `environ` are the variables of its commands; each is given `timeout_s` seconds."""

    def __init__(self, environ: Mapping[str, str], timeout_s: float = COMMAND_S) -> None:
        self._environ = environ
        self._timeout_s = timeout_s

    def submit(self, jobs: Sequence[JobRequest]) -> list[JobHandle]:
        """Submit jobs in order; see `Scheduler.submit`."""
        raise NotImplementedError

    def observe(self, handles: Sequence[JobHandle]) -> Mapping[str, JobState]:
        """Return the state of each job; see `Scheduler.observe`."""
        raise NotImplementedError

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """End jobs; see `Scheduler.cancel`."""
        raise NotImplementedError

    def adopt(self, marker: str) -> list[JobHandle]:
        """Return the jobs of a run; see `Scheduler.adopt`."""
        raise NotImplementedError
