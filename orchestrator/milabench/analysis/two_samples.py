"""Two sets of independent numbers: how far apart they are and how sure that is; docs/explanation/methodology.md, 1.4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from milabench.analysis.intervals import Interval, t_quantile
from milabench.analysis.sample_statistics import mean, median, stdev


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A difference with its standard error and the degrees of freedom that it stands on."""

    d: float
    error: float
    freedom: float

    @classmethod
    def of_variances(cls, d: float, parts: Sequence[tuple[float, float]]) -> Estimate:
        """Return a difference whose variance is the sum of these, each with its degrees of freedom; after Satterthwaite."""
        variance = math.fsum(part for part, _ in parts)
        freedom = (
            variance**2 / math.fsum(part**2 / degrees for part, degrees in parts)
            if variance
            else math.fsum(degrees for _, degrees in parts)
        )
        return cls(d=d, error=math.sqrt(variance), freedom=freedom)

    def interval(self, level: float = 0.95) -> Interval:
        """Return d -+ t error."""
        half = t_quantile((1 + level) / 2, self.freedom) * self.error if self.error else 0.0
        return self.d - half, self.d + half

    def ratio_interval(self, level: float = 0.95) -> Interval:
        """Return the interval of exp d: that of the ratio whose logarithm this is."""
        low, high = self.interval(level)
        return math.exp(low), math.exp(high)


def welch(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return the mean of b less the mean of a, with unequal variances and degrees of freedom after Satterthwaite.

    Raises ValueError when a side has fewer than two values.
    """
    parts = [(stdev(side) ** 2 / len(side), len(side) - 1) for side in (a, b)]
    return Estimate.of_variances(mean(b) - mean(a), parts)


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return the mean of the differences b - a of pairs. Raises ValueError below two pairs."""
    differences = [after - before for before, after in zip(a, b, strict=True)]
    return Estimate(
        d=mean(differences), error=stdev(differences) / math.sqrt(len(differences)), freedom=len(differences) - 1
    )


def fieller(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval | None:
    """Return the interval of mean(b) / mean(a) after Fieller (Kalibera and Jones 2013); None when a's mean may be zero.

    Degrees of freedom are those of the smaller side, which makes it conservative.
    """
    t = t_quantile((1 + level) / 2, min(len(a), len(b)) - 1)
    centre_a, centre_b = mean(a), mean(b)
    half_a, half_b = (t * stdev(side) / math.sqrt(len(side)) for side in (a, b))
    below = centre_a**2 - half_a**2
    if below <= 0:
        return None
    product = centre_a * centre_b
    root = math.sqrt(max(0.0, product**2 - below * (centre_b**2 - half_b**2)))
    return (product - root) / below, (product + root) / below


def mann_whitney_u(a: Sequence[float], b: Sequence[float]) -> float:
    """Return in how many of the pairs a's value is the larger one, ties counting half."""
    return math.fsum((left > right) + (left == right) / 2 for left in a for right in b)


def mann_whitney_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p-value of the Mann-Whitney test: exact without ties up to 50 a side, else corrected normal."""
    n, m = len(a), len(b)
    u = mann_whitney_u(a, b)
    most = max(u, n * m - u)
    values = [*a, *b]
    has_ties = len(set(values)) < len(values)
    if not has_ties and max(n, m) <= 50:
        counts = _u_counts(n, m)
        return min(1.0, 2 * sum(counts[math.ceil(most) :]) / sum(counts))
    groups = [values.count(value) for value in set(values)]
    total = n + m
    variance = n * m / 12 * (total + 1 - math.fsum(g**3 - g for g in groups) / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    return min(1.0, math.erfc((most - n * m / 2 - 0.5) / math.sqrt(variance) / math.sqrt(2)))


def least_p(n: int, m: int) -> float:
    """Return the lowest two-sided p-value that the Mann-Whitney test can give: 2 / C(n + m, n)."""
    return min(1.0, 2 / math.comb(n + m, n))


@lru_cache(maxsize=64)
def _u_counts(n: int, m: int) -> tuple[int, ...]:
    """Return how many of the C(n+m, n) orders give each U from 0 to n m."""
    # The number of partitions of u into at most n parts of at most m: a Gaussian binomial, one factor at a time.
    counts = [1] + [0] * (n * m)
    for part in range(1, n + 1):
        for u in range(n * m, m + part - 1, -1):
            counts[u] -= counts[u - m - part]
        for u in range(part, n * m + 1):
            counts[u] += counts[u - part]
    return tuple(counts)


def hodges_lehmann(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the median of all differences b - a: how far b is shifted, whatever the shape of the distributions."""
    return median([after - before for before in a for after in b])
