"""Where the level of a history changes: every place at once, by optimal partitioning (Jackson et al. 2005).

The segmentation that minimises the squared distances from the segments' means, over the noise's variance, plus a penalty for
each change. The search is exact: PELT (Killick et al. 2012) finds the same and only leaves out more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from milabench.analysis.sample_statistics import MAD_TO_SD, geometric_mean, mean, median

LEAST_SEGMENT = 3  # fewer runs are outliers, not a level
LEAST_HISTORY = 2 * LEAST_SEGMENT
LEAST_CHANGE = 0.01  # relative; nobody acts on less, as in docs/explanation/methodology.md, 1.0, noise floor
# Penalty in units of the noise's variance: _PENALTY ln n (1 + _SHORT / n). Chosen by simulation, so that at most 5 % of the
# histories without a change, of 6 to 200 runs, get one; the second factor allows for noise estimated from few runs.
_PENALTY = 3.0
_SHORT = 10.0
_LEAST_NOISE = 1e-4  # of a logarithm: equal values do not mean that there is no noise
_CLAIM = 0.05
_DRAWS, _SETTLE = 199, 20
_LONG = 10  # runs of a level: noise of two modes hardly stays in one of them for so long
_MOST_LEVELS = 3  # more levels are rather noise that depends on the run before
_REACH = 3.0  # standard deviations from the median of its neighbours beyond which a value is clipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Runs `start` to `stop` (not included) of a history, and their level, the geometric mean of their values."""

    start: int
    stop: int
    level: float


def segments(values: Sequence[float]) -> tuple[Segment, ...]:
    """Return the levels of a history of values above zero, in order. A single level when nothing changes, none without a value.

    Changes below 1 % do not count, and neither does anything in a history of less than six values.
    """
    if not values:
        return ()
    logs = [math.log(value) for value in values]
    starts = change_points(logs) if len(values) >= LEAST_HISTORY else []
    while True:
        bounds = [0, *starts, len(values)]
        segments_found = [
            Segment(start=start, stop=stop, level=geometric_mean(values[start:stop]))
            for start, stop in pairwise(bounds)
        ]
        steps = [abs(math.log(later.level / earlier.level)) for earlier, later in pairwise(segments_found)]
        if not steps or min(steps) >= math.log1p(LEAST_CHANGE):
            return tuple(segments_found)
        starts.pop(steps.index(min(steps)))


def shown_changes(values: Sequence[float], parts: Sequence[Segment]) -> tuple[bool, ...]:
    """Return of each change between some levels of a history whether noise alone would hardly bring it (5 %), else perhaps.

    The noise has the distribution of this history, such as two modes or two digits, and its dependence on the run before. A
    change is tested among the runs of the two neighbouring levels where both are long and levels are few, else among all runs.
    """
    logs = [math.log(value) for value in values]
    shown = []
    for before, after in pairwise(parts):
        is_long = min(before.stop - before.start, after.stop - after.start) >= _LONG and len(parts) <= _MOST_LEVELS
        window = logs[before.start : after.stop] if is_long else logs
        # As many places as were tried, and as many windows of this length as the history has.
        tried = (len(parts) - 1) * len(logs) / len(window)
        shown.append(_p_of_noise(window) * tried <= _CLAIM)
    return tuple(shown)


def _p_of_noise(values: Sequence[float]) -> float:
    """Return how often noise like a history's shows an equally clear change, at any place.

    The history is modelled as a single change and noise of first order: innovations, drawn again in another order, make others.
    """
    found, place = _clearest(values)
    levels = mean(values[:place]), mean(values[place:])
    rest = [value - levels[index >= place] for index, value in enumerate(values)]
    squares = math.fsum(value * value for value in rest)
    if not squares:
        return 0.0
    n = len(values)
    linked = math.fsum(one * other for one, other in pairwise(rest)) / squares
    # What taking the means out has removed: twice the usual correction (Kendall 1954) of two means, for the place is chosen.
    linked = min(0.95, max(0.0, linked) + 4 * (1 + 2 * max(0.0, linked)) / n)
    innovations = [later - linked * earlier for earlier, later in pairwise(rest)]
    seed, hits = n, 0
    for _ in range(_DRAWS):
        state, drawn = 0.0, list[float]()
        for _ in range(n + _SETTLE):
            # Knuth's linear congruential generator (MMIX): the same answer each time.
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            state = linked * state + innovations[(seed >> 33) % len(innovations)]
            drawn.append(state)
        hits += _clearest(drawn[_SETTLE:])[0] >= found
    return (hits + 1) / (_DRAWS + 1)


def _clearest(values: Sequence[float]) -> tuple[float, int]:
    """Return the largest share of the squares that a single change explains, and its place."""
    n, total = len(values), math.fsum(values)
    squares = math.fsum(value * value for value in values) - total * total / n
    best, place, before = 0.0, LEAST_SEGMENT, math.fsum(values[: LEAST_SEGMENT - 1])
    for index in range(LEAST_SEGMENT, n - LEAST_SEGMENT + 1):
        before += values[index - 1]
        apart = before / index - (total - before) / (n - index)
        gain = apart * apart * index * (n - index) / n
        if gain > best:
            best, place = gain, index
    return (best / squares if squares > 0 else 0.0), place


def change_points(values: Sequence[float]) -> list[int]:
    """Return the indices at which a new level begins. Single outliers are clipped first and begin none."""
    sigma = max(noise(values), _LEAST_NOISE)
    n = len(values)
    penalty = _PENALTY * math.log(n) * (1 + _SHORT / n) if n > 1 else math.inf
    return partition([value / sigma for value in _without_outliers(values, sigma)], penalty)


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of the noise around rarely changing levels, from the median of neighbours' differences."""
    if len(values) < 2:
        return 0.0
    return MAD_TO_SD * median([abs(later - earlier) for earlier, later in pairwise(values)]) / math.sqrt(2)


def partition(values: Sequence[float], penalty: float, least: int = LEAST_SEGMENT) -> list[int]:
    """Return the starts, except the first, of the segments with the lowest cost: sum of squared residuals plus `penalty` each.

    No segment is shorter than `least`. O(n^2).
    """
    n = len(values)
    sums, squares = [0.0], [0.0]
    for value in values:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)

    def cost(start: int, stop: int) -> float:
        total = sums[stop] - sums[start]
        return squares[stop] - squares[start] - total * total / (stop - start)

    best = [-penalty] + [math.inf] * n
    came_from = [0] * (n + 1)
    for stop in range(least, n + 1):
        for start in range(stop - least + 1):
            reached = best[start] + cost(start, stop) + penalty
            if reached < best[stop]:
                best[stop], came_from[stop] = reached, start
    starts: list[int] = []
    stop = n
    while stop and came_from[stop]:
        stop = came_from[stop]
        starts.append(stop)
    return starts[::-1]


def _without_outliers(values: Sequence[float], sigma: float) -> list[float]:
    """Clip each value to the reach of the median of itself and two neighbours on both sides (Hampel's filter)."""
    kept = []
    for index, value in enumerate(values):
        centre = median(values[max(0, index - 2) : index + 3])
        kept.append(min(max(value, centre - _REACH * sigma), centre + _REACH * sigma))
    return kept
