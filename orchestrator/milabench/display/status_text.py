"""The words in which both displays say the same things, and the tally both keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from milabench.events.model import Line
from milabench.events.sanitize import one_line
from milabench.events.wire import decode


@dataclass(slots=True)
class Tally:
    """How many steps there are, and how many ended how; of a step that was tried several times, its last end."""

    planned: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    _outcomes: dict[str, str] = field(default_factory=dict)

    def count(self, step: str, outcome: str) -> None:
        """Count the step's outcome."""
        before = self._outcomes.get(step)
        if before is not None:
            self.ended[before] -= 1
        self._outcomes[step] = outcome
        self.ended[outcome] = self.ended.get(outcome, 0) + 1

    @property
    def done(self) -> int:
        """How many steps are over."""
        return len(self._outcomes)

    def __str__(self) -> str:
        """Return `3/9 done: 2 passed, 1 failed`."""
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self.ended.items() if count)
        return f"{self.done}/{self.planned} done" + (f": {counts}" if counts else "")


def rate_text(last: Mapping[str, Any]) -> str:
    """Return `812.40 images/s`; empty when there is no rate."""
    rate = last.get("rate")
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        return ""
    return f"{shortened(rate)} {last.get('units') or ''}".rstrip()


def shortened(number: float) -> str:
    """Format a number in four or more digits, of steady width while it hardly changes."""
    size = abs(number)
    if size >= 1e7 or 0 < size < 1e-3:
        return f"{number:.3e}"
    return f"{number:.1f}" if size >= 1000 else f"{number:.2f}" if size >= 10 else f"{number:.4f}"


def progress_text(last: Mapping[str, Any]) -> str:
    """Return `20/60`, or `75 steps` once past the wanted count; empty when unknown."""
    match last.get("progress"):
        case [int(made), int(wanted)] if made < wanted:
            return f"{made}/{wanted}"
        case [int(made), *_]:
            return f"{made} steps"
        case _:
            return ""


def ending_of(outcome: str, reason: str) -> str:
    """Return `passed`, or `failed: exit: ValueError: bad`, on one line and without control characters."""
    reason_line = one_line(reason)
    return f"{outcome}: {reason_line}" if reason_line else outcome


def lines_of(payload: bytes) -> Iterator[str]:
    """Yield the text of `line` records."""
    for record in payload.split(b"\n"):
        try:
            event = decode(record, "")
        except ValueError:
            continue
        if isinstance(event, Line):
            yield one_line(event.text)
