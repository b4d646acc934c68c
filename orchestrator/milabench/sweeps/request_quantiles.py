"""Quantiles of the requests of a point: only with enough of them, with bounds by order statistics (methodology.md, 1.2).

The q-quantile needs n requests with 1 - q^n >= 0.95 (`most_bounds`: 5 for p50, 29 for p90, 299 for p99), so that the slowest of
them bounds it: MLPerf's early stopping without a request over the limit. Repeats count together where their requests are alike.
Else each repeat needs as many, and the bounds are of a mean over repeats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, groupby

from milabench.analysis.intervals import (
    LEAST_LAUNCHES,
    Interval,
    incomplete_beta,
    most_bounds,
    t_quantile,
)
from milabench.analysis.sample_statistics import geometric_mean, mean, stdev
from milabench.analysis.serving_model import PointValue

LEVELS = (0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9999)
"""The confidences of stored one-sided bounds."""
_UNLIKE = 0.01
"""Repeats are not alike where requests like theirs would differ as much in fewer cases than these."""


def requests_quantile(launches: Sequence[Sequence[float]], q: float) -> PointValue | None:
    """Return the q-quantile of requests' times above zero, each repeat's in order. None where they are too few.

    Its `launches` are empty unless each repeat has enough requests of its own.
    """
    launches = [launch for launch in launches if launch]
    needed = most_bounds(q)
    count = sum(map(len, launches))
    if count < needed:
        return None
    has_own = all(len(launch) >= needed for launch in launches)
    own = tuple(quantile_of(launch, q) for launch in launches) if has_own else ()
    if _are_alike(launches, q):
        together = sorted(chain.from_iterable(launches))
        return _value(quantile_of(together, q), _interval(together, q), own, *_rank_bounds(together, q))
    if not own or not all(map(math.isfinite, own)):
        return None
    return _of_few(launches, own, q) if len(own) < LEAST_LAUNCHES else _over_launches(own)


def _of_few(launches: Sequence[Sequence[float]], own: tuple[float, ...], q: float) -> PointValue | None:
    """Return a quantile of too few repeats for an interval: whichever of them is typical, its own bounds hold."""
    lowers, uppers = zip(*(_rank_bounds(launch, q) for launch in launches), strict=True)
    lower = {level: min(one[level] for one in lowers) for level in lowers[0] if all(level in one for one in lowers)}
    upper = {level: max(one[level] for one in uppers) for level in uppers[0] if all(level in one for one in uppers)}
    return _value(geometric_mean(own), None, own, lower, upper)


def _over_launches(own: tuple[float, ...]) -> PointValue | None:
    """Return the mean of repeats' quantiles with its log-t bounds."""
    logs = [math.log(value) for value in own]
    error, centre = stdev(logs) / math.sqrt(len(logs)), mean(logs)
    reach = {f"{level:g}": t_quantile(level, len(logs) - 1) * error for level in LEVELS}
    lower = {level: math.exp(centre - part) for level, part in reach.items()}
    upper = {level: math.exp(centre + part) for level, part in reach.items()}
    return _value(math.exp(centre), (lower["0.975"], upper["0.975"]), own, lower, upper)


def _value(
    value: float,
    ci95: Interval | None,
    launches: tuple[float, ...],
    lower: dict[str, float],
    upper: dict[str, float],
) -> PointValue | None:
    # An answer whose time nobody knows is above all others.
    if not math.isfinite(value):
        return None
    known = ci95 if ci95 is not None and math.isfinite(ci95[1]) else None
    upper = {level: bound for level, bound in upper.items() if math.isfinite(bound)}
    return PointValue(value=value, ci95=known, launches=launches, lower=lower, upper=upper)


def is_known_quantile(launches: Sequence[Sequence[float]], q: float) -> bool:
    """Return whether requests have a q-quantile, however few they are: not where it falls on an unknown time."""
    together = sorted(chain.from_iterable(launches))
    return bool(together) and math.isfinite(quantile_of(together, q))


def is_surely_above(launches: Sequence[Sequence[float]], q: float, limit: float) -> bool:
    """Return whether the requests of each repeat alone show at 95 % confidence that their q-quantile is above a limit."""
    return all(_rank_bounds(launch, q)[0].get("0.95", -math.inf) > limit for launch in launches)


def quantile_of(ordered: Sequence[float], q: float) -> float:
    """Return the median-unbiased q-quantile of ordered values (type 8 of Hyndman and Fan 1996)."""
    return _at(ordered, (len(ordered) + 1 / 3) * q + 1 / 3)


def _at(ordered: Sequence[float], rank: float) -> float:
    """Return the value at a rank, from 1, which need not be whole."""
    rank = min(max(rank, 1.0), float(len(ordered)))
    below = math.floor(rank)
    low, part = ordered[below - 1], rank - below
    return low + part * (ordered[below] - low) if part else low


def _interval(ordered: Sequence[float], q: float) -> Interval | None:
    """Return the 95 % interval by interpolated order statistics (Nyblom 1992), with equal tails where values suffice."""
    n = len(ordered)
    above = max(0.025, q**n)
    low = _rank(n, q, 0.05 - above)
    return (_at(ordered, low), _at(ordered, n + 1 - _rank(n, 1 - q, above))) if low >= 1 else None


def _rank_bounds(ordered: Sequence[float], q: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return the one-sided bounds by level: order statistics that hold with at least that confidence, as far as there are any."""
    n = len(ordered)
    lows = {level: math.floor(_rank(n, q, 1 - level)) for level in LEVELS}
    highs = {level: n + 1 - math.floor(_rank(n, 1 - q, 1 - level)) for level in LEVELS}
    return (
        {f"{level:g}": ordered[rank - 1] for level, rank in lows.items() if rank >= 1},
        {f"{level:g}": ordered[rank - 1] for level, rank in highs.items() if rank <= n},
    )


@lru_cache(maxsize=4096)
def _rank(n: int, q: float, tail: float) -> float:
    """Return the rank, from 0, interpolated, whose order statistic is above the q-quantile with this probability."""

    def above(rank: int) -> float:  # of the order statistic of this rank: fewer values than that are below the quantile
        return 1 - incomplete_beta(q, rank, n - rank + 1) if rank else 0.0

    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if above(middle) <= tail + 1e-12 else (low, middle)
    reach = above(high) - above(low)
    return low + min(1.0, (tail - above(low)) / reach) if reach > 0 else float(low)


def _are_alike(launches: Sequence[Sequence[float]], q: float) -> bool:
    """Return whether repeats may share a distribution: by ranks (Kruskal and Wallis), and by the counts in each tail."""
    ordered = sorted((value, index) for index, launch in enumerate(launches) for value in launch)
    scores: list[tuple[float, int]] = []
    for _, group in groupby(ordered, key=lambda pair: pair[0]):
        members = [index for _, index in group]
        scores += [(len(scores) + (len(members) + 1) / 2, index) for index in members]
    limit = q * len(scores)
    tails = [(float(rank > limit), index) for rank, index in scores]
    sizes = [len(launch) for launch in launches]
    return min(_p_of_one(scores, sizes), _p_of_one(tails, sizes)) >= _UNLIKE


def _p_of_one(scores: Sequence[tuple[float, int]], sizes: Sequence[int]) -> float:
    """Return the probability, if all groups were alike, that their means differ so much (F test)."""
    n, groups = len(scores), len(sizes)
    sums = [0.0] * groups
    for score, index in scores:
        sums[index] += score
    centre = math.fsum(sums) ** 2 / n
    between = math.fsum(total * total / size for total, size in zip(sums, sizes, strict=True)) - centre
    within = math.fsum(score * score for score, _ in scores) - centre - between
    if groups < 2 or between <= 1e-12 * centre:
        return 1.0
    d1, d2 = groups - 1, n - groups
    return incomplete_beta(within / (within + between), d2 / 2, d1 / 2) if within > 0 and d2 > 0 else 0.0
