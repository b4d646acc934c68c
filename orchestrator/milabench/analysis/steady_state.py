"""A series of step durations -> where a leftover warm-up ends (docs/explanation/methodology.md, 1.1).

Pettitt's idea with the maximum taken over standardised rank sums (Miller and Siegmund 1982; p-value after Lausen and Schumacher
1992). Steps of one process depend on each other, so the statistic is that of as many independent values as they are worth, and
is compared with Student's t. How far a window that is not steady may be off is `uncertainty`'s to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from milabench.analysis.intervals import normal_quantile, t_tail
from milabench.analysis.order_statistics import OrderStatistics
from milabench.analysis.sample_statistics import lag1, mean, median, median_absolute_deviation
from milabench.analysis.stalls import stalls

DRIFT_LIMIT = 0.01  # nobody acts on a smaller change; docs/explanation/methodology.md, 1.1
AGREEMENT = 0.005
"""By which share two rates of the same thing, or two clocks, may differ."""
_CHANGE_LEVEL = 0.03  # of a leftover warm-up: what it cuts off costs precision, not truth
_MOST_LEFT_OVER = 0.2  # of the time of a window; more of it is ordinary work, however slow
_BLOCKS = 2000  # longer series are tested as means of neighbours
_LEAST = 10  # values, below which nothing is tested
_EDGE = 0.05  # of the series on both sides, where a change cannot be distinguished from an outlier
_RHYTHM_COUNTS = 0.05  # of the time, in regular long steps
_LEAST_PERIODS = 20  # fewer are too few to be tested as one value each
_OUTLIER = 7.5  # median absolute deviations
# What a fit with its own levels takes from the correlation of the residuals at n values: (n r + a) / (n - b) gives it back.
# By simulation of AR(1) with 0 to 0.95, 60 to 600 values: tests/perf/verdicts.py.
_LOST, _FITTED = 4, 16


def settled_at(durations: Sequence[float], order: OrderStatistics | None = None) -> int:
    """Return how many of the first durations of a window are warm-up that is left over.

    A change from slow to fast in the first fifth is the end of a warm-up, where the level holds from there on.
    Any other one is none: a device that slows down as it gets hot begins fast, and one that swings is slow again later. `order`
    is that of the durations, where it is known.
    """
    blocks, starts = _units(durations, order)
    settled = _warm_up(blocks)
    return starts[settled] if settled else 0


def _units(durations: Sequence[float], order: OrderStatistics | None) -> tuple[Sequence[float], Sequence[int]]:
    """Return (what is tested, the index at which each of it begins): durations, means of neighbours, or of whole periods.

    Where regular long steps hold a good part of the time, as at the end of each epoch, the steps between them say little.
    """
    rhythm = stalls(durations, order=order).rhythm
    if rhythm is not None and rhythm.share_of_all > _RHYTHM_COUNTS and len(rhythm.starts) > _LEAST_PERIODS:
        bounds = pairwise(rhythm.starts)
        return [math.fsum(durations[start:stop]) / (stop - start) for start, stop in bounds], rhythm.starts
    blocks, size = _blocks(durations, _BLOCKS)
    return blocks, range(0, len(durations), size)


def _warm_up(blocks: Sequence[float]) -> int:
    """Return how many of the first blocks are warm-up; none where the level changes again after it."""
    settled = 0
    while (change := change_point(blocks[settled:])) is not None:
        left_over = math.fsum(blocks[: settled + change.at])
        is_early = settled + change.at <= len(blocks) / 2
        if not is_early or change.before < change.after or left_over > _MOST_LEFT_OVER * math.fsum(blocks):
            return 0
        settled += change.at
    return settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of level: the index of the first value after it, the levels on both sides, its p-value."""

    at: int
    before: float
    after: float
    p: float


def change_point(values: Sequence[float], level: float = _CHANGE_LEVEL) -> Change | None:
    """Return where the level of a series changes, by at least 1 %; None when it does not. O(n log n)."""
    n = len(values)
    edge = max(3, math.ceil(n * _EDGE))
    if n < max(_LEAST, 2 * edge + 1):
        return None
    ranks = _centred_ranks(values)
    variance = math.fsum(rank * rank for rank in ranks) / (n - 1)
    if not variance:
        return None
    _, best = _split(ranks, edge)
    split, _ = _split(_centred(_clipped(values)), edge)  # ranks detect a change best, values locate it best
    before, after = _centre(values[:split]), _centre(values[split:])
    if abs(before - after) < DRIFT_LIMIT * abs(after):
        return None
    residuals = [value - after for value in values[split:]]
    if split > n / 2:  # what comes before the end of a warm-up may be of several levels, which are no dependence
        residuals += [value - before for value in values[:split]]
    z = _independent_z(math.sqrt(best / variance), residuals, fitted=2)
    p = _maximum_tail(z, edge / n)
    return Change(at=split, before=before, after=after, p=p) if p < level else None


def _split(centred: Sequence[float], edge: int) -> tuple[int, float]:
    """Return (index, its score) where the sums before and after differ most; divided by the variance the score is a squared z."""
    n = len(centred)
    total, best, split = 0.0, 0.0, edge
    for before, value in enumerate(centred[: n - edge], start=1):
        total += value
        if before >= edge:
            score = total * total * n / (before * (n - before))
            if score > best:
                best, split = score, before
    return split, best


def _clipped(values: Sequence[float]) -> list[float]:
    """Return the values, outliers clipped, so that one slow step does not say where a change is."""
    centre = median(values)
    reach = _OUTLIER * median_absolute_deviation(values)
    return [min(max(value, centre - reach), centre + reach) for value in values] if reach else list(values)


def _centred(values: Sequence[float]) -> list[float]:
    centre = mean(values)
    return [value - centre for value in values]


def _blocks(values: Sequence[float], most: int) -> tuple[Sequence[float], int]:
    """Return (block means, neighbours per block), with at most `most` blocks."""
    size = math.ceil(len(values) / most) or 1
    if size == 1:
        return values, 1
    return [math.fsum(values[start : start + size]) / size for start in range(0, len(values) - size + 1, size)], size


def _centred_ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, equal ones sharing theirs, less the mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and values[order[stop]] == values[order[start]]:
            stop += 1
        for index in order[start:stop]:
            ranks[index] = (start + stop - len(values)) / 2
        start = stop
    return ranks


def _centre(values: Sequence[float]) -> float:
    """Return the mean without the tenth at both ends: unlike the median it moves when the share of slow steps does."""
    ordered = sorted(values)
    cut = len(ordered) // 10
    kept = ordered[cut : len(ordered) - cut]
    return math.fsum(kept) / len(kept)


def _correlation(residuals: Sequence[float]) -> float:
    """Return the lag-1 correlation of the ranks of what a fit leaves over, with what the fit took from it; 0 where negative."""
    n = len(residuals)
    if n <= _FITTED + 1:
        return 0.0
    found = lag1(_centred_ranks(residuals)) or 0.0
    return min(0.99, max(0.0, (n * found + _LOST) / (n - _FITTED)))


def _independent_z(z: float, residuals: Sequence[float], *, fitted: int) -> float:
    """Return a standardised statistic as that of the independent values that residuals are worth, less `fitted` parameters."""
    correlation = _correlation(residuals)
    weight = (1 - correlation) / (1 + correlation)
    return _normal_equivalent(z * math.sqrt(weight), max(1.0, len(residuals) * weight - fitted))


def _normal_equivalent(t: float, freedom: float) -> float:
    """Return the normal deviate with the tail that t has under Student's distribution."""
    tail = t_tail(t, freedom) if math.isfinite(t) else 0.0
    return 40.0 if tail < 1e-300 else -normal_quantile(tail)


def _maximum_tail(z: float, edge: float) -> float:
    """Return P(the largest of the standardised rank sums > z), `edge` left out on both sides (Lausen and Schumacher 1992)."""
    if z <= 1:
        return 1.0
    density = _density(z)
    return min(1.0, density * (z - 1 / z) * 2 * math.log((1 - edge) / edge) + 4 * density / z)


def _density(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def agree(left: float, right: float, limit: float = AGREEMENT) -> bool:
    """Return whether two rates of the same thing are within `limit` of each other."""
    return abs(left - right) <= limit * max(abs(left), abs(right))
