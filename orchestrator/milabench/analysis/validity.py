"""What makes a number doubtful: what checks found, and instances that did not measure at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from milabench.analysis.measure import Window
from milabench.events.model import Line, StepEvent, Verdict

LEAST_OVERLAP = 0.95

# What a verdict other than pass means for the number. Where a check has no reason of its own, only its failure counts.
_REASONS = {
    "throttle": "throttled",
    "power": "power-limited",
    "foreign": "foreign-process",
    "sensor": "sensor-lost",
    "energy": "energy",
    "contended": "contended",
}
_ANY_CHECK = "validation"


class EventObserver(Protocol):
    """Somebody who wants to see the events of a step, too."""

    def see(self, event: StepEvent) -> None:
        """Take one event into account."""


class StepCheck(EventObserver, Protocol):
    """A check, as far as it is needed here: sees every event of a step, then has a verdict."""

    def verdict(self) -> Verdict:
        """What the events come to."""


ChecksOf = Callable[[str], Sequence[StepCheck]]
"""The checks of a step, by its id."""


def unchecked(_: str) -> Sequence[StepCheck]:
    """No checks."""
    return ()


def tee(events: Iterable[StepEvent], watchers: Sequence[EventObserver]) -> Iterator[StepEvent]:
    """The same events, each shown to the watchers: a step's records are read once, whoever wants to see them.

    Lines of output are not shown: there may be millions, and a check looks at what was measured.
    """
    for event in events:
        if not isinstance(event, Line):
            for watcher in watchers:
                watcher.see(event)
        yield event


def reasons_of(verdicts: Iterable[Verdict]) -> set[str]:
    """The reasons for doubt (docs/protocol.md, section 5) that follow from a step's verdicts."""
    return {
        _REASONS.get(one.check, _ANY_CHECK)
        for one in verdicts
        if one.verdict == "fail" or (one.verdict == "warn" and one.check in _REASONS)
    }


def overlap(windows: Sequence[Window | None]) -> float | None:
    """The time in which all instances of a group measured over that in which any did, 0 to 1; None for unknown windows."""
    starts = [window.start for window in windows if window is not None and window.start is not None]
    stops = [window.stop for window in windows if window is not None and window.stop is not None]
    if len(windows) < 2 or len(starts) < len(windows) or len(stops) < len(windows):
        return None
    union = max(stops) - min(starts)
    return max(0.0, min(stops) - max(starts)) / union if union > 0 else None


def validation_json(verdict: Verdict) -> dict[str, Any]:
    """`{"step", "check", "verdict", "numbers", "message"}`."""
    numbers: Mapping[str, Any] = verdict.numbers
    return {
        "step": verdict.step,
        "check": verdict.check,
        "verdict": verdict.verdict,
        "numbers": dict(numbers),
        "message": verdict.message,
    }
