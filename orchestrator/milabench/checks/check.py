"""The form of a check: a verdict on the measurements of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from milabench.events.model import Verdict

if TYPE_CHECKING:
    from milabench.analysis.measure import Measurement

VALIDATION = "validation"  # the doubt of a check that has no word of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """The context that the checks of a step share.

    `devices` are the step's accelerators by number, empty when it runs on slots of a processor. `may_use_one`: its program
    chooses which of them it uses. `ranks` is how many processes should report, None when that is not known.
    """

    step: str
    devices: tuple[int, ...] = ()
    may_use_one: bool = False
    ranks: int | None = None


class Check(ABC):
    """Gives a verdict on the measurements of a step.

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

    @abstractmethod
    def verdict(self, measured: Measurement) -> Verdict:
        """Return the verdict on the measurements of the step, with the single observations and readings."""

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
