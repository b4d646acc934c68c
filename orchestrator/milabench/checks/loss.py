"""Is the loss a number, and does it move."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from milabench.checks.check import Check, StepContext
from milabench.events.model import Data, StepEvent, Verdict
from milabench.events.numbers import finite_number

# Fewer equal losses in a row can be chance (a plateau, few digits).
_LEAST_EQUAL = 5


class LossCheck(Check):
    """Fails on a loss that is not finite or ends outside its band, warns about one that stays the same.

    Settings: `min` and `max`, between which the last loss must lie. Passes where no loss is reported, unless a band is given.
    """

    name = "loss"
    doc = "finite, moving, the last one between `validation.loss.min` and `.max`"
    severities = ("fail", "warn")

    def __init__(self, context: StepContext, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(context, settings)
        self._last: float | None = None
        self._count = 0
        self._nonfinite = 0
        self._lowest = math.inf
        self._highest = -math.inf

    def observe(self, event: StepEvent) -> None:
        """Take a loss into account."""
        if not isinstance(event, Data) or "loss" not in event.data:
            return
        self._count += 1
        loss = finite_number(event.data["loss"])
        if loss is None:
            self._nonfinite += 1
        else:
            self._lowest, self._highest = min(self._lowest, loss), max(self._highest, loss)
            self._last = loss

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with how many losses there were."""
        numbers: dict[str, Any] = {"count": self._count, "nonfinite": self._nonfinite}
        if self._nonfinite:
            return self.failure(f"{self._nonfinite} of {self._count} losses are not finite", numbers)
        low, high = self.settings.get("min"), self.settings.get("max")
        if low is not None or high is not None:
            numbers |= {"last": self._last, "min": low, "max": high}
            if self._last is None:
                return self.failure("no loss was reported, although a band is given for it", numbers)
            if (low is not None and self._last < low) or (high is not None and self._last > high):
                return self.failure(f"the last loss, {self._last:g}, is outside its band", numbers)
        if self._count >= _LEAST_EQUAL and self._lowest == self._highest:
            return self.warning(f"the loss did not move in {self._count} reports: {self._lowest:g}", numbers)
        return self.passed(numbers)
