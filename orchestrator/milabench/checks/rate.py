"""Was anything measured."""

from __future__ import annotations

from typing import Any

from milabench.checks.check import Check
from milabench.events.doubts import Doubt
from milabench.events.model import Config, Data, ObservationBatch, StepEvent, Verdict
from milabench.events.values import positive


class RateCheck(Check):
    """Fails without one usable observation or metric, and warns about unusable ones."""

    name = "rate"
    doc = "usable observations (`nonfinite`)"
    severities = ("fail", "warn")
    _count = 0
    _unusable = 0
    _metrics = 0
    _is_command = False

    def observe(self, event: StepEvent) -> None:
        """Count observations or a metric."""
        match event:
            case ObservationBatch():
                self._count += len(event.ns)
            case Config(data=config):
                # Its number is its time, or in its lines: whether they hold what was asked for decides how the step ended.
                self._is_command = config.get("timed") is True or bool(config.get("metrics"))
            case Data(data=data) if "rate" in data:
                if positive(data["rate"]) is not None:
                    self._count += 1
                else:
                    self._unusable += 1
            case Data(data=data) if "metric" in data:
                self._metrics += 1
            case _:
                pass

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with how many observations there were."""
        numbers: dict[str, Any] = {"count": self._count, "unusable": self._unusable, "metrics": self._metrics}
        if not self._count and not self._metrics and not self._is_command:
            unusable = f": {self._unusable} observations have no usable rate" if self._unusable else ""
            return self.failure(f"nothing was measured{unusable}", numbers)
        if self._unusable:
            total = self._count + self._unusable
            return self.warning(f"{self._unusable} of {total} observations have no usable rate", numbers)
        return self.passed(numbers)

    def doubt_for(self, verdict: Verdict) -> str | None:
        """Return `nonfinite` for observations that are no numbers, as the analysis does."""
        return Doubt.NONFINITE if self._unusable else super().doubt_for(verdict)
