"""A series of step durations -> whether and from where on it is steady (methodology.md, 1.1: warm-up, drift, dependence).

Two questions, two tests. Where does a leftover warm-up end: Pettitt's idea with the maximum taken over standardised rank sums
(Miller and Siegmund 1982; p-value after Lausen and Schumacher 1992). Is what follows of one level: the segment that differs most
from the rest, wherever it lies, as for copy numbers along a chromosome (Olshen et al. 2004; tail after Siegmund 1988), and the
drift (Theil and Sen, Mann and Kendall). Steps of one process depend on each other, so each statistic is that of as many
independent values as they are worth, and is compared with Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul, sub

from milabench.analysis.intervals import normal_quantile, t_tail
from milabench.analysis.order_statistics import OrderStatistics
from milabench.analysis.sample_statistics import effective_n, lag1, mean, median, median_absolute_deviation
from milabench.analysis.stalls import stalls

# Nobody acts on a change or a drift below this; docs/explanation/methodology.md, 1.1.
DRIFT_LIMIT = 0.01
LEVEL = 0.05
"""How often a benchmark on stationary noise may be called unsteady, whatever the number of its launches."""
_CHANGE_LEVEL = 0.03  # of a leftover warm-up: what it cuts off costs precision, not truth
MOST_LEFT_OVER = 0.2
"""Of the time of a window, that may be left over of the warm-up: more of it is ordinary work, however slow."""
_LEAST_IMPACT = 0.005  # on the mean of the window, below which a level of its own in a part of it is ignored
_BLOCKS = 2000  # longer series are tested as means of neighbours
_DRIFT_BLOCKS = 200
_SEGMENT_BLOCKS = 120  # every segment of them is tried
_LEAST = 10  # values, below which nothing is tested
_EDGE = 0.05  # of the series on both sides, where a change cannot be distinguished from an outlier
_RHYTHM_COUNTS = 0.05  # of the time, in regular long steps
_LEAST_PERIODS = 20  # fewer are too few to be tested as one value each
_OUTLIER = 7.5  # median absolute deviations
# What a fit with its own levels takes from the correlation of the residuals at n values: (n r + a) / (n - b) gives it back.
# By simulation of AR(1) with 0 to 0.95, 60 to 600 values: tests/perf/verdicts.py.
_LOST, _FITTED = 4, 16
_MOST_CORRELATED = 0.95
_SHARE_OF_FREEDOM = 0.25  # of n - 4, in a test that takes the correlation, which is only estimated, as known


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """What the durations of a window say: `settled_at` is how many of its first values are warm-up that is left over.

    `drift` is the Theil-Sen slope over what follows, relative to its median, end against beginning. `n_effective`: as many
    independent values as what follows is worth. `p`: how often stationary noise would look as unsteady as this, at most.
    """

    n: int
    settled_at: int
    drift: float
    lag1: float
    n_effective: float
    p: float = 1.0

    def is_steady(self, launches: int = 1) -> bool:
        """Return whether nothing speaks against a steady state, when so many launches of a benchmark are looked at.

        By Bonferroni: else ten launches of noise would be called unsteady more often than one.
        """
        return self.p >= LEVEL / launches


def steadiness(
    durations: Sequence[float], order: OrderStatistics | None = None, most_left_over: float = MOST_LEFT_OVER
) -> Steadiness:
    """Judge a window: where its warm-up ends, and whether what follows is steady.

    A change from slow to fast in the first fifth (`most_left_over`) is the end of a warm-up, where the level holds from there on.
    Any other one is none: a device that slows down as it gets hot begins fast, and one that swings is slow again later. `order`
    is that of the durations, where it is known.
    """
    n = len(durations)
    blocks, starts = _units(durations, order)
    settled, p_slower = _warm_up(blocks, most_left_over)
    rest = blocks[settled:]
    slope, p_drift = drift(rest)
    p = min(1.0, 2 * min(p_slower, segment_p(rest), p_drift))
    if settled and p < LEVEL:
        return steadiness(durations, order, 0.0)
    settled_at = starts[settled] if settled else 0
    own = durations[settled_at:]
    correlation = lag1(own, near=mean(rest)) or 0.0 if rest else 0.0
    return Steadiness(
        n=n,
        settled_at=settled_at,
        drift=slope,
        lag1=correlation,
        n_effective=min(len(own), effective_n(len(own), max(correlation, 0.0))) if len(own) else 0.0,
        p=p,
    )


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


def _warm_up(blocks: Sequence[float], most_left_over: float) -> tuple[int, float]:
    """Return (how many of the first blocks are warm-up, p-value of the speed having fallen in the first half instead)."""
    settled = 0
    while (change := change_point(blocks[settled:])) is not None and settled + change.at <= len(blocks) / 2:
        if change.before < change.after:
            return settled, change.p
        if math.fsum(blocks[: settled + change.at]) > most_left_over * math.fsum(blocks):
            return settled, 1.0
        settled += change.at
    return settled, 1.0


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


def segment_p(values: Sequence[float]) -> float:
    """Return the p-value of the segment that differs most from the rest, 1 where it moves the mean by less than 0.5 %. O(k^2).

    The better of two tests: of ranks, which no outlier misleads, and of the clipped values with their dependence on the
    value before taken out, which sees the sudden change that slow noise does not make.
    """
    blocks, _ = _blocks(values, _SEGMENT_BLOCKS)
    n = len(blocks)
    least = max(3, math.ceil(n * _EDGE))
    if n < max(_LEAST, 2 * least + 1):
        return 1.0
    ranks = _centred_ranks(blocks)
    variance = math.fsum(rank * rank for rank in ranks) / (n - 1)
    if not variance:
        return 1.0
    start, stop, score = _best_segment(ranks, least)
    inside, outside = _centre(blocks[start:stop]), _centre([*blocks[:start], *blocks[stop:]])
    share = min(stop - start, n - stop + start) / n
    if abs(inside - outside) * share < _LEAST_IMPACT * math.fsum(blocks) / n:
        return 1.0
    residuals = [value - (inside if start <= index < stop else outside) for index, value in enumerate(blocks)]
    by_ranks = _independent_z(math.sqrt(score / variance), residuals, fitted=3)
    by_values = _innovation_t(_clipped(blocks), start, stop, min(_MOST_CORRELATED, _correlation(residuals)))
    z = max(by_ranks, _normal_equivalent(by_values, max(3.0, (n - 4) * _SHARE_OF_FREEDOM)))
    return min(1.0, 2 * _segment_tail(z, n, least / n))


def drift(values: Sequence[float]) -> tuple[float, float]:
    """Return the relative drift from end to end by Theil and Sen, and its p-value by Mann and Kendall (1 below 1 %)."""
    blocks, _ = _blocks(values, _DRIFT_BLOCKS)
    n = len(blocks)
    centre = median(blocks) if blocks else 0.0
    if n < 3 or not centre:
        return 0.0, 1.0
    slopes, concordance = [], 0
    for later in range(1, n):
        for earlier in range(later):
            rise = blocks[later] - blocks[earlier]
            slopes.append(rise / (later - earlier))
            concordance += (rise > 0) - (rise < 0)
    slope = median(slopes)
    relative = slope * (n - 1) / abs(centre)
    if n < _LEAST or abs(relative) < DRIFT_LIMIT:
        return relative, 1.0
    residuals = [value - slope * index for index, value in enumerate(blocks)]
    z = max(0, abs(concordance) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return relative, math.erfc(_independent_z(z, residuals, fitted=2) / math.sqrt(2))


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


def _best_segment(centred: Sequence[float], least: int) -> tuple[int, int, float]:
    """Return (start, stop, score) of the segment whose sum differs most from what is expected of its length; see `_split`."""
    n = len(centred)
    sums = [0.0, *accumulate(centred)]
    best = (0, least, 0.0)
    for length in range(least, n - least + 1):
        start, total = max(enumerate(map(sub, sums[length:], sums)), key=lambda pair: abs(pair[1]))
        score = total * total * n / (length * (n - length))
        if score > best[2]:
            best = (start, start + length, score)
    return best


def _innovation_t(values: Sequence[float], start: int, stop: int, correlation: float) -> float:
    """Return the t statistic of a level of its own in a segment of an AR(1) series (generalised least squares)."""
    first = math.sqrt(1 - correlation * correlation)

    def innovations(series: Sequence[float]) -> list[float]:
        return [first * series[0], *(later - correlation * earlier for earlier, later in pairwise(series))]

    y, ones = innovations(values), innovations([1.0] * len(values))
    step = innovations([float(start <= index < stop) for index in range(len(values))])
    oo, os, ss = _dot(ones, ones), _dot(ones, step), _dot(step, step)
    oy, sy = _dot(ones, y), _dot(step, y)
    determinant = oo * ss - os * os
    if determinant <= 0:
        return 0.0
    height = (oo * sy - os * oy) / determinant
    level = (oy - height * os) / oo
    squares = math.fsum((a - level * b - height * c) ** 2 for a, b, c in zip(y, ones, step, strict=True))
    variance = squares / (len(values) - 3) * oo / determinant
    return abs(height) / math.sqrt(variance) if variance else math.inf


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(map(mul, left, right))


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


def _segment_tail(z: float, n: int, edge: float) -> float:
    """Return P(the largest of the standardised sums of all segments of n values > z) (Siegmund 1988; Olshen et al. 2004)."""
    if z <= 2:
        return 1.0
    points = 60
    width = (1 - 2 * edge) / points
    total = 0.0
    for index in range(points):
        share = edge + (index + 0.5) * width
        total += _overshoot(z / math.sqrt(n * share * (1 - share))) ** 2 / (share * share * (1 - share))
    return min(1.0, z**3 * _density(z) * total * width / 2)


def _overshoot(x: float) -> float:
    """Return Siegmund's nu, which allows for a random walk that jumps over its bound (approximation of Siegmund and Yakir)."""
    half = x / 2
    below = math.erfc(-half / math.sqrt(2)) / 2
    return (2 / x) * (below - 0.5) / (half * below + _density(half))


def _density(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def agree(left: float, right: float, limit: float = 0.005) -> bool:
    """Return whether two rates of the same thing are within `limit` of each other."""
    return abs(left - right) <= limit * max(abs(left), abs(right))
