"""Was anything measured."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

from orchestrator.events.model import Data, Event, Verdict

# Fewer observations have no halves to compare.
_ENOUGH = 10
# How far the two halves of the window may be apart.
DRIFT = 0.05


class RateCheck:
    """Fails without one usable observation or metric, warns about unusable ones, and about a rate that is not steady.

    Steady: the second half of what was observed after warm-up is within `settings["drift"]` (default 0.05) of the first half.
    """

    def __init__(self, step: str, settings: Mapping[str, Any] | None = None) -> None:
        self._step = step
        self._most_drift = float((settings or {}).get("drift", DRIFT))
        self._items = array("d")
        self._seconds = array("d")
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
                self._keep(event.data)
            else:
                self._unusable += 1
        elif "metric" in event.data:
            self._metrics += 1

    def _keep(self, data: Mapping[str, Any]) -> None:
        n, elapsed = data.get("n"), data.get("elapsed")
        is_main = data.get("task", "train") in ("train", "inference") and not data.get("warmup")
        if is_main and _is_positive(n) and _is_positive(elapsed):
            self._items.append(n)  # type: ignore[arg-type]
            self._seconds.append(elapsed)  # type: ignore[arg-type]

    def _drift(self) -> float | None:
        """How far the rate of the later half, by number, is from that of the first, relative to it."""
        half = len(self._items) // 2
        if len(self._items) < _ENOUGH:
            return None
        first = math.fsum(self._items[:half]) / math.fsum(self._seconds[:half])
        return math.fsum(self._items[half:]) / math.fsum(self._seconds[half:]) / first - 1

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with how many observations there were."""
        numbers: dict[str, Any] = {"count": self._count, "unusable": self._unusable, "metrics": self._metrics}
        if not self._count and not self._metrics:
            message = "nothing was measured"
            return Verdict(step=self._step, check="rate", verdict="fail", numbers=numbers, message=message)
        if self._unusable:
            message = f"{self._unusable} of {self._count + self._unusable} observations have no usable rate"
            return Verdict(step=self._step, check="rate", verdict="warn", numbers=numbers, message=message)
        drift = self._drift()
        if drift is not None:
            numbers["drift"] = drift
            if abs(drift) > self._most_drift:
                message = f"not steady: the second half of the window is {drift:+.1%} from the first"
                return Verdict(step=self._step, check="rate", verdict="warn", numbers=numbers, message=message)
        return Verdict(step=self._step, check="rate", verdict="pass", numbers=numbers)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
