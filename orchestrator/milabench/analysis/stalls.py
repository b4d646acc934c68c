"""Where a loop stood still within its window: steps far longer than the others, told from a rhythm such as a checkpoint.

A frozen process, a device that throttles for a second, a disk that does not answer: a single step takes the time of
sixty, and the mean does not show it. The cost of such steps is a component of the number's `uncertainty`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from milabench.analysis.order_statistics import OrderStatistics, order_statistics
from milabench.analysis.sample_statistics import MAD_TO_SD, median

_PART_MATTERS = 0.007  # of the window's time, in the longest step of a rhythm, above which whole periods are counted
_FAR = 6.0  # standard deviations, by the median absolute deviation, beyond which a step is not one of the others
_LEAST_EXCESS = 0.1  # of the median: where all steps take the same time, the clock's noise is no deviation
_LEAST_RHYTHM = 3  # of two intervals it cannot be said that they are alike by intent
_LEAST_PERIOD = 4  # steps; what comes more often is a slow part of the window, some steps of which are less slow
_JITTER = 0.02  # of a period, or one step: a checkpoint every so many seconds falls now before, now after a step
_ALIKE = 3.0  # how many times as long as the shortest the longest of a rhythm may be
_AT_ONCE = 1_000  # durations
_LARGEST = 4  # so many of the largest stalls may be none of a rhythm


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Neighbouring steps, `start` to `stop` (not included), that together took `excess` more time than as many others."""

    start: int
    stop: int
    excess: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Long steps at regular places, and the shares of the time of the longest and of all of them."""

    events: tuple[Stall, ...]
    share: float
    share_of_all: float

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each begins."""
        return tuple(event.start for event in self.events)

    @property
    def is_short(self) -> bool:
        """Whether it is too short to be cut to whole periods: the ends of at most two epochs."""
        return len(self.events) < _LEAST_RHYTHM

    @property
    def period(self) -> float:
        """Steps from a stall to the next, on average."""
        return (self.starts[-1] - self.starts[0]) / (len(self.starts) - 1)

    def whole_periods(self) -> tuple[int, int] | None:
        """Return the steps from the first to the last, whole periods. None where a part of a period changes nothing."""
        return (self.starts[0], self.starts[-1]) if self.share > _PART_MATTERS and not self.is_short else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """The stalls of a window in order, its rhythm, and all long steps that belong to the program."""

    events: tuple[Stall, ...] = ()
    rhythm: Rhythm | None = None
    regular: tuple[Stall, ...] = ()


def stalls(
    cycles: Sequence[float],
    items: Sequence[float] | None = None,
    order: OrderStatistics | None = None,
    epochs: Sequence[int] = (),
) -> Stalls:
    """Find the stalls of a window: `cycles` from the begin of each step to the next, `items` of each where they differ.

    A step is long only when it is long for its items, too: a large batch is no stall. `order` is the order of the
    cycles, where it is known. `epochs` are the steps with which an epoch begins: where these are long, that is known
    rhythm, however unlike they are.
    """
    excess = _excess(cycles, order)
    if items is not None and excess:
        mean = math.fsum(items) / len(items)
        for_items = _excess([t * mean / n if n > 0 else t for t, n in zip(cycles, items, strict=True)])
        excess = {index: min(above, for_items[index]) for index, above in excess.items() if index in for_items}
    if not excess:
        return Stalls()
    events = [
        Stall(start=run.start, stop=run.stop, excess=math.fsum(excess.get(index, 0.0) for index in run))
        for run in _runs(excess)
    ]
    known = _of_epochs(events, epochs, len(cycles))
    others = [event for event in events if event not in known]
    regular = _regular(others)
    single = [event for event in others if event not in regular]
    rhythms = []
    for alike in filter(None, (known, regular)):
        # One that took far longer than the others of the rhythm has a stall in it.
        usual = median([event.excess for event in alike])
        longer = [event for event in alike if event.excess > 2 * usual]
        single += [replace(event, excess=event.excess - usual) for event in longer]
        rhythm = [replace(event, excess=usual) if event in longer else event for event in alike]
        rhythms.append(_rhythm(rhythm, math.fsum(cycles)))
    return Stalls(
        events=tuple(sorted(single, key=lambda event: event.start)),
        rhythm=max(rhythms, key=lambda rhythm: rhythm.share_of_all, default=None),
        regular=tuple(event for rhythm in rhythms for event in rhythm.events),
    )


def _of_epochs(events: Sequence[Stall], epochs: Sequence[int], count: int) -> Sequence[Stall]:
    """Return the stalls in which an epoch begins. Empty where most epochs begin without a stall, or last only a few steps."""
    if len(epochs) * _LEAST_PERIOD > count:
        return []
    begins = set(epochs)
    known = [event for event in events if not begins.isdisjoint(range(event.start, event.stop))]
    return known if 2 * len(known) >= len(epochs) else []


def _excess(durations: Sequence[float], order: OrderStatistics | None = None) -> dict[int, float]:
    """Return by how much each duration is above the median, by its index, for those that are far above it."""
    if not durations:
        return {}
    order = order_statistics(durations) if order is None else order
    centre = order.median
    reach = max(_FAR * MAD_TO_SD * order.deviation, _LEAST_EXCESS * centre)
    excess: dict[int, float] = {}
    if order.most - centre <= reach:
        return excess
    # Of millions nearly none is far above: where the longest of many is not, none of them is looked at.
    for first in range(0, len(durations), _AT_ONCE):
        some = durations[first : first + _AT_ONCE]
        if max(some) - centre > reach:
            excess |= {index: value - centre for index, value in enumerate(some, first) if value - centre > reach}
    return excess


def _runs(indices: Mapping[int, float]) -> list[range]:
    """Return the runs of neighbours, or of next neighbours, among indices that rise."""
    runs: list[range] = []
    for index in indices:
        if runs and index <= runs[-1].stop + 1:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs


def _regular(events: Sequence[Stall]) -> Sequence[Stall]:
    """Return the longest stalls that are alike and come at regular steps, in order. Empty where there is no such rhythm."""
    largest = sorted((event.excess for event in events), reverse=True)[:_LARGEST]
    for most in largest:
        alike = [event for event in events if most / _ALIKE <= event.excess <= most]
        distances = [later.start - earlier.start for earlier, later in pairwise(alike)]
        mean = math.fsum(distances) / max(1, len(distances))
        if (
            len(alike) >= _LEAST_RHYTHM
            and mean >= _LEAST_PERIOD
            and all(abs(d - mean) <= max(1, _JITTER * mean) for d in distances)
        ):
            return alike
    return []


def _rhythm(regular: Sequence[Stall], total: float) -> Rhythm:
    excess = [event.excess for event in regular]
    return Rhythm(
        events=tuple(regular),
        share=max(excess) / total,
        share_of_all=math.fsum(excess) / total,
    )
