"""The current activities of an installation, a line for each environment, program and node, and their display."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from milabench.execute.interrupts import repeated


@dataclass(slots=True)
class _Activity:
    """An activity and its start. `observe` returns its visible progress, called by the thread that watches."""

    began: float
    what: str
    observe: Callable[[], str]


Report = Callable[[str], object]
"""Called with each stage of an installation, as a line without credentials."""


class Activities:
    """The current activities by name. Workers change them, and a thread shows them. Stages are reported as lines."""

    def __init__(self, report: Report = lambda _: None) -> None:
        self._report = report
        self._reporting = threading.Lock()
        self._lock = threading.Lock()
        self._current: dict[str, _Activity] = {}

    def report(self, line: str) -> None:
        """Report a stage, from a single thread at a time."""
        with self._reporting:
            self._report(line)

    def now(self, name: str, what: str, observe: Callable[[], str] = str) -> None:
        """Name the current activity, until the next call. The time counts from the first call."""
        with self._lock:
            known = self._current.get(name)
            self._current[name] = _Activity(known.began if known else time.monotonic(), what, observe)

    def over(self, name: str) -> None:
        """Drop the activity of a name."""
        with self._lock:
            self._current.pop(name, None)

    def rows(self) -> tuple[str, ...]:
        """Return a line for each activity, such as `torch: installing: 3 of 41 packages, 412 MB written, 34 s`."""
        with self._lock:
            current = list(self._current.items())
        rows = []
        for name, activity in current:
            parts = (activity.what, activity.observe(), f"{time.monotonic() - activity.began:.0f} s")
            rows.append(f"{name}: {', '.join(filter(None, parts))}")
        return tuple(rows)

    def watched(self, show: Callable[[tuple[str, ...]], object], every_s: float) -> AbstractContextManager[None]:
        """Call `show` with the rows at this interval in seconds, in a separate thread, until the end of the context."""
        return repeated(lambda: show(self.rows()), every_s, "activities")
