"""Arithmetic on samples: the median with its exact interval, and when to stop. Sees only numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95
EXACT_UP_TO = 1000
FEWEST_FOR_INTERVAL = 6  # below, even the extremes do not bound the median with 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """When enough has been measured: at least `samples` and `seconds`, and the interval of the median within `precision`.

    Looked at every `every` samples. At `longest_s` or `most` samples sampling ends anyway, unconverged.
    """

    precision: float = 0.005
    samples: int = 30
    seconds: float = 0.5
    longest_s: float = 15.0
    every: int = 16
    most: int = 16384

    def is_time_to_look(self, count: int) -> bool:
        """Whether the rule is looked at after this many samples: seldom, so that looking often does not stop it by luck."""
        return count >= self.samples and (count - self.samples) % self.every == 0

    def is_converged(self, estimate: Estimate, elapsed_s: float) -> bool:
        """Whether the estimate is as sharp as asked."""
        return elapsed_s >= self.seconds and estimate.half_width is not None and estimate.half_width <= self.precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A median of `samples` with its exact 95 % interval (None below 6 samples), in the unit of the samples."""

    median: float
    ci95: tuple[float, float] | None
    samples: int
    min: float
    mad: float
    p95: float

    @property
    def half_width(self) -> float | None:
        """Half of the interval as a share of the median."""
        if self.ci95 is None or self.median <= 0:
            return None
        return (self.ci95[1] - self.ci95[0]) / 2 / self.median


def estimate(samples: Sequence[float]) -> Estimate:
    """Return the estimate of the median. Raises ValueError for no samples."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    count = len(ordered)
    middle = quantile(ordered, 0.5)
    rank = interval_rank(count)
    return Estimate(
        median=middle,
        ci95=None if rank is None else (ordered[rank - 1], ordered[count - rank]),
        samples=count,
        min=ordered[0],
        mad=quantile(sorted(abs(value - middle) for value in ordered), 0.5),
        p95=quantile(ordered, 0.95),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values by linear interpolation (R7)."""
    position = (len(ordered) - 1) * share
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@functools.lru_cache(maxsize=4096)
def interval_rank(count: int, level: float = LEVEL) -> int | None:
    """Return the rank j such that the j-th smallest and the j-th largest of `count` samples enclose the median with `level`.

    The largest j with P(Bin(count, 1/2) < j) <= (1 - level) / 2. None where there is none. Beyond 1000 samples the normal
    approximation, rounded to the wider side.
    """
    if count < FEWEST_FOR_INTERVAL:
        return None
    if count > EXACT_UP_TO:
        # 1.959964 is the quantile of the normal distribution that leaves 2.5 % above it.
        return math.floor(count / 2 - 1.959964 * math.sqrt(count) / 2)
    tail, below, rank = (1 - level) / 2 * 2**count, 0, 0
    while below + math.comb(count, rank) <= tail:
        below += math.comb(count, rank)
        rank += 1
    return rank or None
