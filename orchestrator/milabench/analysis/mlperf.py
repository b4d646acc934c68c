"""MLPerf's own arithmetic, for figures that stand beside MLPerf's; its rules' text where text and checker differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

from milabench.analysis.intervals import t_quantile
from milabench.analysis.spread import mean


def olympic_mean(values: Sequence[float]) -> float:
    """The mean without the smallest and the largest value. Raises ValueError below three values."""
    if len(values) < 3:
        raise ValueError("an olympic mean of fewer than three values")
    return mean(sorted(values)[1:-1])


def least_mean(reference_mean: float, reference_sd: float, n_reference: int, n: int) -> float:
    """The lowest mean of n runs that does not differ from a reference convergence point, one-sided at 5 %, equal spreads.

    Means and numbers of runs are those after the smallest and the largest were left out on each side.
    """
    t = t_quantile(0.95, n_reference + n - 2)
    return reference_mean - t * reference_sd * math.sqrt(1 / n_reference + 1 / n)


def queries_needed(quantile: float, over: int, confidence: float = 0.99) -> int:
    """How many queries it takes, `over` of which were over the latency bound, to claim it for this quantile (early stopping).

    The least n with P(Bin(n, 1 - quantile) <= over) <= 1 - confidence.
    """
    n = over + 1
    while _at_most(over, n, 1 - quantile) > 1 - confidence:
        n += 1
    return n


def _at_most(over: int, n: int, p: float) -> float:
    return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(over + 1))
