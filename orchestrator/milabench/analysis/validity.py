"""What makes a number suspect: the verdicts of checks, and instances that did not overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from milabench.analysis.measure import Window
from milabench.events.model import Line, StepEvent, Verdict

LEAST_OVERLAP = 0.95


class EventObserver(Protocol):
    """An observer of the events of a step while they are analysed."""

    def observe(self, event: StepEvent) -> None:
        """Take one event into account."""


class StepCheck(EventObserver, Protocol):
    """The part of a check that is needed here: observes every event of a step, then has a verdict."""

    def verdict(self) -> Verdict:
        """Return the verdict on the events observed so far."""

    def reason_for(self, verdict: Verdict) -> str | None:
        """Return why the verdict makes the step's number suspect, None when it does not."""


ChecksOf = Callable[[str], Sequence[StepCheck]]
"""The checks of a step, by its id."""


def unchecked(_: str) -> Sequence[StepCheck]:
    """Return no checks."""
    return ()


def tee(events: Iterable[StepEvent], observers: Sequence[EventObserver]) -> Iterator[StepEvent]:
    """Yield the same events, each shown to the observers: a step's records are read once, whoever wants to see them.

    Lines of output are not shown: there may be millions, and a check looks at what was measured.
    """
    for event in events:
        if not isinstance(event, Line):
            for observer in observers:
                observer.observe(event)
        yield event


def overlap(windows: Sequence[Window | None]) -> float | None:
    """Return the time in which all instances of a group measured over that in which any did, 0 to 1; None for unknown windows."""
    starts = [window.start for window in windows if window is not None and window.start is not None]
    stops = [window.stop for window in windows if window is not None and window.stop is not None]
    if len(windows) < 2 or len(starts) < len(windows) or len(stops) < len(windows):
        return None
    union = max(stops) - min(starts)
    return max(0.0, min(stops) - max(starts)) / union if union > 0 else None


def validation_json(verdict: Verdict) -> dict[str, Any]:
    """`{"step", "check", "verdict", "numbers", "message"}`."""
    return {name: getattr(verdict, name) for name in ("step", "check", "verdict", "numbers", "message")}
