"""A scheduler in memory: what the follower of jobs is tested with, held to the same contract as Slurm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milabench.errors import Unreachable, UsageError
from milabench.schedulers.scheduler import JobHandle, JobRequest, JobState

ABSENT = JobState(phase="absent")


class FakeScheduler:
    """Keeps jobs in a dict. `down` makes every verb fail as one that hears nothing; `states` may be changed at will."""

    def __init__(self) -> None:
        self.requests: dict[str, JobRequest] = {}
        self.states: dict[str, JobState] = {}
        self.queries = 0
        self.down = ""

    def submit(self, jobs: Sequence[JobRequest]) -> list[JobHandle]:
        """Queue jobs, in order."""
        handles = []
        for job in jobs:
            self._answer()
            if "--partition=nope" in job.script:
                raise UsageError(f"job {job.name}: Slurm refused it: Invalid partition name specified")
            job.path.write_text(job.script)
            number = len(self.states) + 1
            ids = [f"{number}_{task}" for task in range(job.tasks)] if job.tasks else [str(number)]
            for id_ in ids:
                self.requests[id_] = job
                self.states[id_] = JobState(phase="pending", state="PENDING", reason="Priority", witness="squeue")
                handles.append(JobHandle(id=id_, name=job.name))
        return handles

    def observe(self, handles: Sequence[JobHandle], *, is_doubted: bool = False) -> Mapping[str, JobState]:
        """Return the states of jobs."""
        self.queries += 1
        if self.down:
            return {handle.id: JobState(phase="unknown", reason=self.down) for handle in handles}
        return {handle.id: self.states.get(handle.id, ABSENT) for handle in handles}

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """End jobs that have not ended."""
        self._answer()
        for handle in handles:
            if self.states.get(handle.id, ABSENT).phase in ("pending", "running"):
                self.states[handle.id] = JobState(phase="ended", result="cancelled", state="CANCELLED")

    def adopt(self, marker: str) -> list[JobHandle]:
        """Return the jobs of a run."""
        self._answer()
        known = ((id_, job.name) for id_, job in self.requests.items() if id_ in self.states)
        return [JobHandle(id=id_, name=name) for id_, name in known if name.startswith(f"mb-{marker}-")]

    def _answer(self) -> None:
        if self.down:
            raise Unreachable(self.down)
