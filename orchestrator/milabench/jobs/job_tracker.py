"""Follows jobs of a batch scheduler: the state of each, from answers that may be late, wrong or missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milabench.execute.heartbeat import FRESH_S
from milabench.schedulers.scheduler import UNKNOWN_STATE, JobHandle, JobState, Scheduler

FIRST_INTERVAL_S: Final = 1.0
LONGEST_INTERVAL_S: Final = 10.0
_DECAY: Final = 1.5

LOST_S: Final = 90.0
"""For so long nobody may know a job, and it may show no heartbeat, until it is lost."""
OUTAGE_S: Final = 1800.0
"""The same where no scheduler answers at all and the job had not begun: nothing beats then, and controllers are upgraded."""
LOST_ANSWERS: Final = 3
"""And the number of consecutive answers without it, because milabench itself may have been stopped meanwhile."""
DOUBTED_S: Final = 90.0
"""Seconds before the end of a job with a heartbeat is believed, if no other source confirms it."""

BEATING: Final = JobState(phase="running", witness="heartbeat")
"""The state of a job whose end is doubted, and that nobody has seen running."""


@dataclass(slots=True)
class _Tracked:
    handle: JobHandle
    state: JobState
    witnessed_s: float
    silent_answers: int = 0
    doubted_s: float | None = None  # since when it is said to have ended although its share beats
    is_lost: bool = False


class JobTracker:
    """Knows the states of jobs.

    `tick` asks for all that have not ended by a single `observe`, `interval_s` is when to tick again. `last_beat_s`
    returns how many seconds ago a job's share showed a heartbeat, None when it never did, or its process ended in
    order. While it beats no single answer ends the job. One thread may tick while others read.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        handles: Sequence[JobHandle],
        *,
        clock: Callable[[], float] = time.monotonic,
        last_beat_s: Callable[[JobHandle], float | None] = lambda _: None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._last_beat_s = last_beat_s
        self._jobs = {
            handle.id: _Tracked(handle=handle, state=UNKNOWN_STATE, witnessed_s=clock()) for handle in handles
        }
        self._changed: dict[str, JobHandle] = {}
        self.interval_s = FIRST_INTERVAL_S

    @property
    def states(self) -> Mapping[str, JobState]:
        """The state of each job, by id: a job seen running is running while nobody answers."""
        return {id_: job.state for id_, job in list(self._jobs.items())}

    @property
    def unfinished(self) -> list[JobHandle]:
        """The jobs that have not ended and are not lost."""
        return [job.handle for job in list(self._jobs.values()) if job.state.phase != "ended" and not job.is_lost]

    def is_lost(self, id_: str) -> bool:
        """Whether a job is lost: no source knows it, and its share shows no heartbeat."""
        return self._jobs[id_].is_lost

    def tick(self) -> None:
        """Ask for all unfinished jobs at once. Does nothing when there are none."""
        asked = self.unfinished
        if not asked:
            return
        answers = self._scheduler.observe(asked)
        now = self._clock()
        doubted = self._doubted(
            [handle for handle in asked if answers.get(handle.id, UNKNOWN_STATE).phase == "ended"], now
        )
        for handle in asked:
            job, answer = self._jobs[handle.id], answers.get(handle.id, UNKNOWN_STATE)
            if handle.id not in doubted:
                job.doubted_s = None
            else:
                answer = job.state if job.state.phase == "running" else BEATING
            if answer.phase in ("pending", "running", "ended"):
                self._note(job, answer)
                job.witnessed_s, job.silent_answers = now, 0
            else:
                self._hear_nothing(job, answer, now)
        self.interval_s = min(self.interval_s * _DECAY, LONGEST_INTERVAL_S)

    def changes(self) -> list[JobHandle]:
        """Return the jobs of which something else is known than at the last call, each once."""
        changed, self._changed = self._changed, {}
        return list(changed.values())

    def _doubted(self, ended: Sequence[JobHandle], now: float) -> set[str]:
        """Return which of the jobs that are said to have ended may go on: their shares beat.

        They are asked for again. If they are still reported as ended, another source decides.
        """
        beating = [handle for handle in ended if (beat_s := self._last_beat_s(handle)) is not None and beat_s < FRESH_S]
        again = [handle for handle in beating if self._jobs[handle.id].doubted_s is not None]
        others = self._scheduler.observe(again, is_doubted=True) if again else {}
        doubted = set()
        for handle in beating:
            job, other = self._jobs[handle.id], others.get(handle.id, UNKNOWN_STATE)
            if job.doubted_s is None:
                self.interval_s = FIRST_INTERVAL_S
            if job.doubted_s is None or other.phase in ("pending", "running"):
                job.doubted_s = now
            if other.phase != "ended" and now - job.doubted_s < DOUBTED_S:
                doubted.add(handle.id)
        return doubted

    def _note(self, job: _Tracked, state: JobState) -> None:
        if job.state != state:
            job.state = state
            self._changed[job.handle.id] = job.handle

    def _hear_nothing(self, job: _Tracked, answer: JobState, now: float) -> None:
        job.silent_answers += 1
        if job.state.phase in ("unknown", "absent"):
            self._note(job, answer)
        may_beat = answer.phase == "absent" or job.state.phase == "running"
        budget_s = LOST_S if may_beat else OUTAGE_S
        if now - job.witnessed_s < budget_s or job.silent_answers < LOST_ANSWERS:
            return
        beat_s = self._last_beat_s(job.handle)
        if beat_s is None or beat_s >= LOST_S:
            job.is_lost = True
            self._changed[job.handle.id] = job.handle
