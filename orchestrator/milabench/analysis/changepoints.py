"""Where the level of a history changes: every place at once, by optimal partitioning (Jackson et al. 2005).

The segmentation that minimises the squared distances from the segments' means, over the noise's variance, plus a penalty for
each change. The search is exact: PELT (Killick et al. 2012) finds the same and only leaves out more. `steady_state.change_point`
answers another question: whether one window of thousands of steps has one change; a history is some dozens of runs with several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from milabench.analysis.sample_statistics import MAD_TO_SD, geometric_mean, median

LEAST_SEGMENT = 3  # fewer runs are outliers, not a level
LEAST_HISTORY = 2 * LEAST_SEGMENT
LEAST_CHANGE = 0.01  # relative; nobody acts on less, as in docs/explanation/methodology.md, 1.0, noise floor
# Penalty in units of the noise's variance: _PENALTY ln n (1 + _SHORT / n). Chosen by simulation, so that at most 5 % of the
# histories without a change, of 6 to 200 runs, get one; the second factor allows for noise estimated from few runs.
_PENALTY = 3.0
_SHORT = 10.0
_LEAST_NOISE = 1e-4  # of a logarithm: equal values do not mean that there is no noise
_REACH = 3.0  # standard deviations from the median of its neighbours beyond which a value is clipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Runs `start` to `stop` (not included) of a history, and their level, the geometric mean of their values."""

    start: int
    stop: int
    level: float


def segments(values: Sequence[float]) -> tuple[Segment, ...]:
    """Return the levels of a history of values above zero, in order; one when nothing changes, none without a value.

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


def change_points(values: Sequence[float]) -> list[int]:
    """Return the indices at which a new level begins; single outliers are clipped first and begin none."""
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
    """Return the starts, except the first, of the segments with the least cost: sum of squared residuals plus `penalty` each.

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
