"""What a check is: a fold over one step's events that ends in a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from milabench.events.model import Event, StepEvent, Verdict
from milabench.events.readings import Readings


class Check(Protocol):
    """Sees every event of one step, in order; its verdict may be asked for at any time."""

    def see(self, event: StepEvent) -> None:
        """Take one event into account."""

    def verdict(self) -> Verdict:
        """What the events seen so far come to."""


class DeviceCheck:
    """What the checks of the devices' readings share: which step it is, and what its monitor read."""

    def __init__(self, step: str, readings: Readings) -> None:
        self._step = step
        self._readings = readings

    def see(self, event: StepEvent) -> None:
        """Hand it on to the readings."""
        self._readings.see(event)


def verdict_of_check(
    step: str, check: str, verdict: Literal["pass", "warn", "fail"], numbers: Mapping[str, Any], message: str = ""
) -> Verdict:
    """A verdict, said in one line."""
    return Verdict(step=step, check=check, verdict=verdict, numbers=numbers, message=message)


def verdicts(step: str, events: Iterable[Event], checks: Iterable[Callable[[str], Check]]) -> tuple[Verdict, ...]:
    """The verdict of each check on a step, in one pass over its events."""
    folds = [check(step) for check in checks]
    for event in events:
        for fold in folds:
            fold.see(event)
    return tuple(fold.verdict() for fold in folds)
