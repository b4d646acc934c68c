"""A series of step durations -> whether and from where on it is steady (methodology.md, 1.1: warm-up, drift, dependence).

The change-point is Pettitt's idea with the maximum taken over standardised rank sums (Miller and Siegmund 1982; p-value after
Lausen and Schumacher 1992): no distribution is assumed, no outlier counts for more than its rank, nothing is drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from milabench.analysis.sample_statistics import effective_n, lag1, median, median_absolute_deviation

# Nobody acts on a change or a drift below this; docs/explanation/methodology.md, 1.1.
DRIFT_LIMIT = 0.01
_CHANGE_LEVEL = 0.03  # both tests together stay below 5 % on noise
_DRIFT_LEVEL = 0.01
_BLOCKS = 2000  # longer series are tested as means of neighbours
_DRIFT_BLOCKS = 200
_LEAST = 10  # values, below which nothing is tested
_EDGE = 0.05  # of the series on both sides, where a change cannot be distinguished from an outlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """What the durations of a window say: `settled_at` is how many of its first values are warm-up that is left over.

    `drift` is the Theil-Sen slope over what follows, relative to its median, end against beginning. `n_effective`: as many
    independent values as what follows is worth. `is_steady`: what follows has neither a change nor a drift.
    """

    n: int
    settled_at: int
    drift: float
    lag1: float
    n_effective: float
    is_steady: bool


def steadiness(durations: Sequence[float]) -> Steadiness:
    """Judge a window. A change in its first half is the end of a warm-up; a later one means that there is no steady state."""
    n = len(durations)
    blocks, size = _blocks(durations, _BLOCKS)
    change = _last_change(blocks)
    settled = change if change <= len(blocks) / 2 else 0
    rest = blocks[settled:]
    slope, is_drifting = drift(rest)
    own = durations[settled * size :]
    correlation = lag1(own) or 0.0
    return Steadiness(
        n=n,
        settled_at=settled * size,
        drift=slope,
        lag1=correlation,
        n_effective=min(len(own), effective_n(len(own), max(correlation, 0.0))) if len(own) else 0.0,
        is_steady=change == settled and not is_drifting,
    )


def change_point(values: Sequence[float], level: float = _CHANGE_LEVEL) -> int | None:
    """Return the index at which the level of a series changes, by at least 1 %; None when it does not. O(n log n).

    The test allows for dependence between neighbours, as far as their lag-1 correlation tells of it.
    """
    n = len(values)
    edge = max(3, math.ceil(n * _EDGE))
    if n < max(_LEAST, 2 * edge + 1):
        return None
    ranks = _centred_ranks(values)
    variance = math.fsum(rank * rank for rank in ranks) / (n - 1)
    if not variance:
        return None
    _, best = _split(ranks, edge)
    split, _ = _split(_clipped(values), edge)  # ranks detect a change best, values locate it best
    centre_before, centre_after = _centre(values[:split]), _centre(values[split:])
    if abs(centre_before - centre_after) < DRIFT_LIMIT * abs(centre_after):
        return None
    residuals = [value - centre_before for value in values[:split]] + [value - centre_after for value in values[split:]]
    z = math.sqrt(best / variance * _independence(residuals))
    return split if _maximum_tail(z, edge / n) < level else None


def drift(values: Sequence[float]) -> tuple[float, bool]:
    """Return (relative drift from end to end by Theil and Sen, whether it is above 1 % and, by Mann and Kendall, not noise)."""
    blocks, _ = _blocks(values, _DRIFT_BLOCKS)
    n = len(blocks)
    centre = median(blocks) if blocks else 0.0
    if n < 3 or not centre:
        return 0.0, False
    slopes, concordance = [], 0
    for later in range(1, n):
        for earlier in range(later):
            rise = blocks[later] - blocks[earlier]
            slopes.append(rise / (later - earlier))
            concordance += (rise > 0) - (rise < 0)
    slope = median(slopes)
    relative = slope * (n - 1) / abs(centre)
    if n < _LEAST or abs(relative) < DRIFT_LIMIT:
        return relative, False
    residuals = [value - slope * index for index, value in enumerate(blocks)]
    middle = median(residuals)
    independence = _independence([value - middle for value in residuals])
    z = (abs(concordance) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18) * math.sqrt(independence)
    return relative, math.erfc(z / math.sqrt(2)) < _DRIFT_LEVEL


def _last_change(values: Sequence[float]) -> int:
    """Return the index of the last change, found by looking again at what follows each; 0 when there is none."""
    last = 0
    while (change := change_point(values[last:])) is not None:
        last += change
    return last


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
    """Return the values less their mean, outliers clipped, so that one slow step does not say where a change is."""
    centre = median(values)
    reach = 7.5 * median_absolute_deviation(values)
    clipped = [min(max(value, centre - reach), centre + reach) for value in values] if reach else list(values)
    mean = math.fsum(clipped) / len(clipped)
    return [value - mean for value in clipped]


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


def _independence(residuals: Sequence[float]) -> float:
    """Return by how much neighbours that resemble each other weaken a test: (1-r)/(1+r) of their ranks, 1 when they do not."""
    correlation = lag1(_centred_ranks(residuals)) or 0.0
    # Correlation that a series of this length shows by chance is ignored.
    correlation -= 1 / math.sqrt(len(residuals))
    return (1 - correlation) / (1 + correlation) if correlation > 0 else 1.0


def _maximum_tail(z: float, edge: float) -> float:
    """Return P(the largest of the standardised rank sums > z), `edge` left out on both sides (Lausen and Schumacher 1992)."""
    if z <= 1:
        return 1.0
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return density * (z - 1 / z) * 2 * math.log((1 - edge) / edge) + 4 * density / z


def agree(left: float, right: float, limit: float = 0.005) -> bool:
    """Return whether two rates of the same thing are within `limit` of each other."""
    return abs(left - right) <= limit * max(abs(left), abs(right))
