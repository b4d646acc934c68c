"""From values to places on paper: scales, and the round numbers that are written along them. Unaware of what is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_RATIOS = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.25,
    0.33,
    0.5,
    0.67,
    0.8,
    0.9,
    1,
    1.1,
    1.25,
    1.5,
    2,
    3,
    4,
    5,
    8,
    10,
    20,
    50,
    100,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Values from `low` to `high` on the stretch from `start` to `stop`, linear or by their logarithms."""

    low: float
    high: float
    start: float
    stop: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value; what lies outside lands at the nearer end."""
        bend: Callable[[float], float] = math.log if self.is_log else float
        value = min(max(value, self.low), self.high)
        share = (bend(value) - bend(self.low)) / (bend(self.high) - bend(self.low))
        return self.start + share * (self.stop - self.start)

    def holds(self, value: float) -> bool:
        """Return whether a value lies inside."""
        return self.low <= value <= self.high


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return some round numbers from low to high; low alone where there is nothing between them."""
    if not 0 < high - low < math.inf:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / about))
    step *= next(times for times in (1, 2, 5, 10) if (high - low) / (step * times) <= about)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return round ratios from low to high, 1 among them: at even distances where they are near to 1, else the usual ones."""
    ratios = ticks(low, high, 6) if high / low < 1.6 else [each for each in _RATIOS if low <= each <= high]
    return sorted({round(each, 10) for each in ratios} | {1.0})


def padded(values: Iterable[float], share: float = 0.06) -> tuple[float, float]:
    """Return the range of some values with room around them; never empty."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    room = (high - low) * share or abs(high) * 0.05 or 1.0
    return low - room, high + room


def short(value: float) -> str:
    """Return a number for an axis: few digits, thousands as k."""
    size = abs(value)
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size >= 10 * factor or (size >= factor and unit != "k"):
            return f"{value / factor:.4g}{unit}"
    return f"{value:.4g}"
