"""The form of a check: a fold over a step's events that ends in a verdict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from milabench.events.model import StepEvent, Verdict
from milabench.events.readings import Readings

VALIDATION = "validation"  # the doubt of a check that has no word of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """The context that the checks of a step share.

    `readings` gathers the monitor's readings. All checks of a step observe into the same object. `devices` are the step's
    accelerators by number, empty when it runs on slots of a processor. `may_use_one`: its program chooses which of them it
    uses. `ranks` is how many processes should report, None
    when that is not known.
    """

    step: str
    readings: Readings = field(default_factory=Readings)
    devices: tuple[int, ...] = ()
    may_use_one: bool = False
    ranks: int | None = None


class Check(ABC):
    """Observes every event of a step, in order. Its verdict may be asked for at any time.

    `name` is its name in `--validations`, `doc` its subject (a line of docs/reference/checks.md), `severities` the
    values that its verdict may be besides `pass`. `doubt` is the reason with which it marks a number as suspect
    and `remedy` what to do then. `unmarked` says why its warning does not. Empty: it does. `component` is the component of the
    number's uncertainty whose size is the verdict's number `slowed`, a share of the rate: with a size it marks nothing.
    """

    name: ClassVar[str]
    doc: ClassVar[str]
    severities: ClassVar[tuple[str, ...]]
    doubt: ClassVar[str] = VALIDATION
    remedy: ClassVar[str] = "read the message under the table"
    unmarked: ClassVar[str] = ""
    component: ClassVar[str] = ""
    needs_settings: ClassVar[bool] = False  # whether it is left out where the suite's `validation` has no entry for it

    def __init__(self, context: StepContext, settings: Mapping[str, Any] | None = None) -> None:
        self.context = context
        self.settings = settings or {}

    def observe(self, event: StepEvent) -> None:
        """Take an event into account."""
        self.context.readings.observe(event)

    @abstractmethod
    def verdict(self) -> Verdict:
        """Return the verdict on the events observed so far."""

    def doubt_for(self, verdict: Verdict) -> str | None:
        """Return why this check's verdict makes the step's number suspect, None when it does not."""
        if "slowed" in verdict.numbers:
            return None
        is_marked = verdict.verdict == "fail" or (verdict.verdict == "warn" and not self.unmarked)
        return self.doubt if is_marked else None

    def passed(self, numbers: Mapping[str, object]) -> Verdict:
        """Return the verdict for a step without problems."""
        return Verdict(step=self.context.step, check=self.name, verdict="pass", numbers=numbers)

    def warning(self, message: str, numbers: Mapping[str, object]) -> Verdict:
        """Return a warning, in a line."""
        return Verdict(step=self.context.step, check=self.name, verdict="warn", numbers=numbers, message=message)

    def failure(self, message: str, numbers: Mapping[str, object]) -> Verdict:
        """Return a failure, in a line."""
        return Verdict(step=self.context.step, check=self.name, verdict="fail", numbers=numbers, message=message)
