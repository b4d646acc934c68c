"""How far the records of a run are read: of gigabytes that takes minutes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from milabench.events.attempts import attempts, last_word
from milabench.events.rundir import Run
from milabench.report.labels import duration
from milabench.workflow.options import Session

SHOWN_AFTER_S = 1.0
"""Seconds before progress is shown: a faster read shows nothing."""
EVERY_S = 0.2


class ReadingProgress:
    """Tells, now and then, which share of a run's records is read, how fast, and when it will be all of them."""

    def __init__(self, run: Run, show: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._show = show
        self._clock = clock
        self._whole: int | None = None
        self._bytes = 0
        self._began = self._shown = 0.0

    def take(self, size: int) -> None:
        """Account for a piece of this many bytes that is read now."""
        now = self._clock()
        if self._whole is None:
            self._whole, self._began, self._shown = _bytes_to_read(self._run), now, now + SHOWN_AFTER_S - EVERY_S
        if now - self._shown >= EVERY_S:
            self._shown = now
            self._show(self._text(now - self._began))
        self._bytes += size

    def _text(self, lasted_s: float) -> str:
        share = min(1.0, self._bytes / self._whole) if self._whole else 1.0
        left_s = lasted_s * (1 - share) / share if share else 0.0
        return (
            f"reading {self._run.name}: {100 * share:.0f} %, {self._bytes / lasted_s / 1e6:,.1f} MB/s, "
            f"about {duration(left_s)} left"
        )


def _bytes_to_read(run: Run) -> int:
    """Return the size of the records of the attempts that count."""
    tried, whole = attempts(run.journal), 0
    for step in run.files:
        counts = last_word(tried.get(step, ()))
        with contextlib.suppress(OSError):  # it has none
            whole += (run.path / f"{run.stem(step, counts.number if counts else 1)}.data").stat().st_size
    return whole


@contextlib.contextmanager
def shown_reading(session: Session) -> Iterator[Callable[[Run], Run]]:
    """Yield the callback that shows the progress of reading records. The display is cleared at the end, in any case."""
    try:
        yield lambda run: replace(run, on_read=ReadingProgress(run, session.reporter.show_progress).take)
    finally:
        session.reporter.show_progress("")
