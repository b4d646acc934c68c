"""Is the loss a number, and does it move."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from milabench.events.model import Data, StepEvent, Verdict
from milabench.events.numbers import finite_number

# Fewer equal losses in a row can be chance (a plateau, few digits).
_ENOUGH = 5


class LossCheck:
    """Fails on a loss that is not finite or ends outside its band, warns about one that stays the same.

    `settings`: `min` and `max`, between which the last loss must lie. Passes where no loss is reported, unless a band is given.
    """

    def __init__(self, step: str, settings: Mapping[str, Any] | None = None) -> None:
        self._step = step
        self._band = tuple((settings or {}).get(name) for name in ("min", "max"))
        self._last: float | None = None
        self._count = 0
        self._nonfinite = 0
        self._low = math.inf
        self._high = -math.inf

    def see(self, event: StepEvent) -> None:
        """Take a loss into account."""
        if not isinstance(event, Data) or "loss" not in event.data:
            return
        self._count += 1
        loss = finite_number(event.data["loss"])
        if loss is None:
            self._nonfinite += 1
        else:
            self._low, self._high = min(self._low, loss), max(self._high, loss)
            self._last = loss

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with how many losses there were."""
        numbers: dict[str, Any] = {"count": self._count, "nonfinite": self._nonfinite}
        if self._nonfinite:
            message = f"{self._nonfinite} of {self._count} losses are not finite"
            return Verdict(step=self._step, check="loss", verdict="fail", numbers=numbers, message=message)
        if any(end is not None for end in self._band):
            low, high = self._band
            numbers |= {"last": self._last, "min": low, "max": high}
            if self._last is None:
                message = "no loss was reported, although a band is given for it"
                return Verdict(step=self._step, check="loss", verdict="fail", numbers=numbers, message=message)
            if (low is not None and self._last < low) or (high is not None and self._last > high):
                message = f"the last loss, {self._last:g}, is outside its band"
                return Verdict(step=self._step, check="loss", verdict="fail", numbers=numbers, message=message)
        if self._count >= _ENOUGH and self._low == self._high:
            message = f"the loss did not move in {self._count} reports: {self._low:g}"
            return Verdict(step=self._step, check="loss", verdict="warn", numbers=numbers, message=message)
        return Verdict(step=self._step, check="loss", verdict="pass", numbers=numbers)
