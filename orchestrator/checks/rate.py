"""Was anything measured."""

from __future__ import annotations

import math
from typing import Any

from orchestrator.events.model import Data, Event, Verdict


class RateCheck:
    """Fails without one usable observation or metric, warns about observations that cannot be used."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._count = 0
        self._unusable = 0
        self._metrics = 0

    def see(self, event: Event) -> None:
        """Count an observation or a metric."""
        if not isinstance(event, Data):
            return
        if "rate" in event.data:
            if _is_positive(event.data["rate"]):
                self._count += 1
            else:
                self._unusable += 1
        elif "metric" in event.data:
            self._metrics += 1

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with how many observations there were."""
        numbers: dict[str, Any] = {"count": self._count, "unusable": self._unusable, "metrics": self._metrics}
        if not self._count and not self._metrics:
            message = "nothing was measured"
            return Verdict(step=self._step, check="rate", verdict="fail", numbers=numbers, message=message)
        if self._unusable:
            message = f"{self._unusable} of {self._count + self._unusable} observations have no usable rate"
            return Verdict(step=self._step, check="rate", verdict="warn", numbers=numbers, message=message)
        return Verdict(step=self._step, check="rate", verdict="pass", numbers=numbers)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
