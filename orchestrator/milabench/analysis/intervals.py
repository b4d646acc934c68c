"""Confidence intervals: Student's t, the interval of a geometric mean, the exact interval of a median.

docs/explanation/methodology.md, 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from milabench.analysis.sample_statistics import mean, stdev
from milabench.events.stored_json import Number

Interval = tuple[Number, Number]
LEAST_LAUNCHES = 3
"""Minimum number for a spread and an interval: of two, a single one decides everything, and t is 12.7."""

# Beyond this the normal distribution is nearer than the error of the exact computation.
_NORMAL_FREEDOM = 1e7
_MOST_STEPS = 200  # of Newton's method; far fewer are taken but in the far tail of few degrees of freedom


def log_t_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Return the interval of the geometric mean of independent values above zero: exp(ybar +- t s / sqrt n) on logarithms.

    None below three values.
    """
    if len(values) < LEAST_LAUNCHES:
        return None
    logs = [math.log(value) for value in values]
    half = t_quantile((1 + level) / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    centre = mean(logs)
    return math.exp(centre - half), math.exp(centre + half)


def median_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Return the exact order-statistic interval of the median. None when there are too few values (5 or fewer at 95 %)."""
    ranks = median_ranks(len(values), level)
    if ranks is None:
        return None
    ordered = sorted(values)
    return ordered[ranks[0] - 1], ordered[ranks[1] - 1]


@lru_cache(maxsize=256)
def median_ranks(n: int, level: float = 0.95) -> tuple[int, int] | None:
    """Return the ranks (j, n+1-j), counted from 1, that bound the median: j = max{j: P(Bin(n, 1/2) < j) <= (1-level)/2}."""
    tail = (1 - level) / 2
    low, ways, below = 0, 1, 0
    part, whole = tail.as_integer_ratio()
    at_most = part * 2**n // whole
    while low < n:
        below += ways  # now: how many of the 2^n outcomes have at most `low` heads
        if below > at_most:
            break
        ways = ways * (n - low) // (low + 1)
        low += 1
    return (low, n + 1 - low) if low else None


@lru_cache(maxsize=1024)
def t_quantile(p: float, freedom: float) -> float:
    """Return the p-quantile of Student's t with `freedom` degrees, which need not be whole. Relative error below 1e-11.

    Raises ValueError outside 0 < p < 1 and at no degree of freedom.
    """
    if not 0 < p < 1 or not freedom > 0:
        raise ValueError(f"no t quantile at p={p} with {freedom} degrees of freedom")
    if p < 0.5:
        return -t_quantile(1 - p, freedom)
    if freedom > _NORMAL_FREEDOM:
        return normal_quantile(p)
    # Newton's method from the normal quantile, which lies below: the tail is convex, so that no step goes beyond the root.
    tail = 1 - p
    x = normal_quantile(p)
    front = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    for _ in range(_MOST_STEPS):
        density = math.exp(front - (freedom + 1) / 2 * math.log1p(x * x / freedom))
        step = (t_tail(x, freedom) - tail) / density
        x += step
        if abs(step) <= 1e-9 * x:  # the next step would be the square of this one: below what a float tells apart
            break
    return x


def t_tail(x: float, freedom: float) -> float:
    """Return P(T > x) for x >= 0 under Student's t. With infinitely many degrees of freedom it is the normal tail."""
    if math.isinf(freedom):
        return math.erfc(x / math.sqrt(2)) / 2
    return incomplete_beta(freedom / (freedom + x * x), freedom / 2, 0.5) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's method; DLMF 8.17.22)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, its mirror image does quickly
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300  # instead of a zero; one more than anything else is no nearer to it than a float can tell
    both, c = a + b, 1.0
    value = d = 1 / (1 - both * x / (a + 1) or tiny)
    for m in range(1, 10_000):
        # Two terms a turn, written out: a comparison of a hundred runs evaluates some millions of them.
        at = a + 2 * m
        term = m * (b - m) * x / ((at - 1) * at)
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        value *= c * d
        term = -(a + m) * (both + m) * x / (at * (at + 1))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        change = c * d
        value *= change
        if -3e-16 < change - 1 < 3e-16:
            break
    return value


@lru_cache(maxsize=64)
def normal_quantile(p: float) -> float:
    """Return the p-quantile of the normal distribution."""
    from statistics import NormalDist  # it imports fractions, decimal and random

    return NormalDist().inv_cdf(p)


def most_bounds(q: float, level: float = 0.95) -> int:
    """Return the sample size n at which the largest value bounds the q-quantile with this confidence: 1 - q^n >= level."""
    n = math.ceil(math.log(1 - level) / math.log(q))
    return n if 1 - q**n >= level else n + 1
