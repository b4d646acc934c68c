"""From values to coordinates: scales, and the round numbers along them. Unaware of the drawn content."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_RATIOS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9),
    *(1, 1.1, 1.25, 1.5, 2, 3, 4, 5, 8, 10, 20, 50, 100),
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
        """Return the coordinate of a value, clipped to the scale."""
        bend: Callable[[float], float] = math.log if self.is_log else float
        value = min(max(value, self.low), self.high)
        share = (bend(value) - bend(self.low)) / (bend(self.high) - bend(self.low))
        return self.start + share * (self.stop - self.start)

    def holds(self, value: float) -> bool:
        """Return whether a value lies inside the scale."""
        return self.low <= value <= self.high


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers from low to high. Low alone where there is nothing between them."""
    if not 0 < high - low < math.inf:
        return [low]
    # 1, 2 and 5 times a power of ten: the steps that a reader can divide in the head.
    step = 10 ** math.floor(math.log10((high - low) / about))
    step *= next(times for times in (1, 2, 5, 10) if (high - low) / (step * times) <= about)
    # The last bits of a division must not cost the tick at either end.
    first = math.ceil(low / step - 1e-9)
    return [multiple * step for multiple in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten from low to high, both above zero. Low alone where there is none."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for p in powers for tick in (10.0**p, 2 * 10.0**p, 5 * 10.0**p) if low <= tick <= high] or [low]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return round ratios from low to high, including 1: evenly spaced near 1, else the usual ones."""
    ratios = ticks(low, high, 6) if high / low < 1.6 else [ratio for ratio in _RATIOS if low <= ratio <= high]
    return sorted({round(ratio, 10) for ratio in ratios} | {1.0})


def padded(values: Iterable[float], share: float = 0.06) -> tuple[float, float]:
    """Return the range of some values with a margin. Never empty."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    room = (high - low) * share or abs(high) * 0.05 or 1.0
    return low - room, high + room


def short(value: float) -> str:
    """Format a number for an axis: few digits, thousands as k."""
    # k only from 10,000 on: 1200 is read faster than 1.2k, and fits.
    size = abs(value)
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size >= 10 * factor or (size >= factor and unit != "k"):
            return f"{value / factor:.4g}{unit}"
    return f"{value:.4g}"


def coordinate(value: float) -> str:
    """Format a coordinate to a tenth. 0 for a value without a place."""
    return f"{value:.1f}".removesuffix(".0") if math.isfinite(value) else "0"
