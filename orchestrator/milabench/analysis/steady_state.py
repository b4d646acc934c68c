"""A series of step durations -> where a leftover warm-up ends (docs/explanation/methodology.md, 1.1).

How far a window that is not steady may be off is `uncertainty`'s to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, takewhile

from milabench.analysis.order_statistics import OrderStatistics
from milabench.analysis.sample_statistics import MAD_TO_SD, median, median_absolute_deviation
from milabench.analysis.stalls import stalls

AGREEMENT = 0.005
"""By which share two rates of the same thing, or two clocks, may differ."""
_LEAST_SLOWER = 0.01  # nobody acts on a smaller change
_FAR = 4.0  # standard deviations of the stretches, by the median absolute deviation: of 20 none is by chance
_MOST_LEFT_OVER = 0.2  # of the time of a window; more of it is ordinary work, however slow
_STRETCHES = 20  # of a window, as of its uncertainty
_LEAST = 12  # values, below which nothing is judged: stretches of two
_BLOCKS = 2000  # longer series are judged as means of neighbours
_RHYTHM_COUNTS = 0.05  # of the time, in regular long steps
_LEAST_PERIODS = 20  # fewer are too few to be judged as one value each


def settled_at(durations: Sequence[float], order: OrderStatistics | None = None) -> int:
    """Return how many of the first durations of a window are warm-up that is left over.

    These are the stretches at its begin that are slower than all later ones, to the last slow step. Any other change is none: a
    device that slows down as it gets hot begins fast, and one that swings is slow again later. `order` is the durations' order,
    where it is known.
    """
    blocks, starts = _units(durations, order)
    if len(blocks) < _LEAST:
        return 0
    count = min(_STRETCHES, len(blocks) // 2)
    bounds = [len(blocks) * index // count for index in range(count + 1)]
    stretches = [_low_median(blocks[start:stop]) for start, stop in pairwise(bounds)]
    level, noise = median(stretches), MAD_TO_SD * median_absolute_deviation(stretches)
    limit = level + max(_LEAST_SLOWER * level, _FAR * noise)
    slow = len(list(takewhile(lambda stretch: stretch > limit, stretches)))
    left_over = math.fsum(blocks[: bounds[slow]])
    is_slow_later = any(stretch > limit for stretch in stretches[slow:])
    if not slow or is_slow_later or left_over > _MOST_LEFT_OVER * math.fsum(blocks):
        return 0
    between = (stretches[slow - 1] + level) / 2
    return starts[max(at for at in range(bounds[slow - 1], bounds[slow + 1]) if blocks[at] > between) + 1]


def _low_median(values: Sequence[float]) -> float:
    """Return the lower of the middle values: one long step of two is no slow stretch."""
    return sorted(values)[(len(values) - 1) // 2]


def _units(durations: Sequence[float], order: OrderStatistics | None) -> tuple[Sequence[float], Sequence[int]]:
    """Return (the tested values, the index at which each begins): durations, means of neighbours, or of whole periods.

    Where regular long steps hold a good part of the time, as at the end of each epoch, the steps between them say little.
    """
    rhythm = stalls(durations, order=order).rhythm
    if rhythm is not None and rhythm.share_of_all > _RHYTHM_COUNTS and len(rhythm.starts) > _LEAST_PERIODS:
        bounds = pairwise(rhythm.starts)
        return [math.fsum(durations[start:stop]) / (stop - start) for start, stop in bounds], rhythm.starts
    size = math.ceil(len(durations) / _BLOCKS) or 1
    starts = range(0, len(durations) - size + 1, size)
    return [math.fsum(durations[start : start + size]) / size for start in starts], starts


def agree(left: float, right: float, limit: float = AGREEMENT) -> bool:
    """Return whether two rates of the same thing are within `limit` of each other."""
    return abs(left - right) <= limit * max(abs(left), abs(right))
