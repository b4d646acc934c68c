"""The counted part of a series, after warm-up and inside the window, and its sums.

A part reads millions of observations without copying them.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice, pairwise
from operator import add, sub, truediv
from typing import NamedTuple, TypeVar

from milabench.analysis.intervals import most_bounds
from milabench.analysis.order_statistics import OrderStatistics, order_statistics
from milabench.analysis.sample_statistics import in_blocks
from milabench.analysis.series import CompactSeries, GeneralSeries, RunLengths, Series

T = TypeVar("T")

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_ALIKE = 0.1  # items a step, of two parts of a window
_CYCLES = 10_000  # of more steps several are one cycle: what matters in a window lasts longer than those


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The measured window that the process declared. Monotonic nanoseconds, and unix seconds where it said them."""

    start_ns: int
    stop_ns: int
    start: float | None = None
    stop: float | None = None
    why: str = ""

    def union(self, other: Window) -> Window:
        """Return a window that holds both: each rank of a job tells its own, and warm-up is marked on the observations anyway."""
        first, last = min(self, other, key=lambda w: w.start_ns), max(self, other, key=lambda w: w.stop_ns)
        return replace(last, start_ns=first.start_ns, start=first.start)


class TimeSpan(NamedTuple):
    """A time on the host's clock, monotonic nanoseconds."""

    start_ns: int
    stop_ns: int


def overlap(spans: Sequence[tuple[float, float] | None]) -> float | None:
    """Return the time that lies in all of several spans over that in any, 0 to 1. None for one, and where one is not known."""
    known = [span for span in spans if span is not None]
    if len(known) < max(2, len(spans)):
        return None
    starts, stops = zip(*known, strict=True)
    union = max(stops) - min(starts)
    return max(0.0, min(stops) - max(starts)) / union if union > 0 else None


def part_of(series: Series, window: Window | None) -> Part:
    """Return the observations after warm-up and, where a window was declared, inside it.

    An observation belongs to the window that holds its middle, so that a bound which is off by a clock reading cuts nothing.
    """
    kept: list[range] = []
    for indices, is_warmup in series.warmup.runs():
        if is_warmup:
            continue
        if window is None:
            kept.append(indices)
        elif isinstance(series, GeneralSeries):  # in no order; what has no place on the clock stays
            middles = ((index, series.middles[index]) for index in indices)
            outside = (i for i, middle in middles if middle >= 0 and not window.start_ns <= middle <= window.stop_ns)
            cuts = [indices.start - 1, *outside, indices.stop]
            kept += [range(before + 1, after) for before, after in pairwise(cuts)]
        else:
            # In order: the bounds are found without looking at each of millions.
            first = bisect_left(indices, window.start_ns, key=series.middle)
            kept.append(indices[first : bisect_right(indices, window.stop_ns, key=series.middle)])
    return Part(series, kept, 0 if window is None else window.start_ns)


def later_half(series: Series) -> Part:
    """Return the later half of a series that never left its warm-up: shown, as a number that is not steady."""
    length = len(series.lasted)
    return Part(series, [range((length + 1) // 2, length)])


@dataclass(frozen=True, slots=True)
class Cycles:
    """Times from the end of a step to the end of the next, in ns, or of `size` steps where there are very many.

    A gap belongs to the step after it, as in `Part.spans`. `begins_ns` is when each began. `items` the items of each, None
    where every step does as much. `epochs` are the numbers of those with which an epoch begins.
    """

    size: int
    ns: list[int] = field(default_factory=list)
    begins_ns: list[int] = field(default_factory=list)
    items: list[float] | None = None
    epochs: list[int] = field(default_factory=list)


class Part:
    """Some observations of a rank, in order: ranges of the indices of its series, from `start_ns` on."""

    def __init__(self, series: Series, ranges: Sequence[range], start_ns: int = 0) -> None:
        self.series = series
        self._ranges = [indices for indices in ranges if indices]
        self._start_ns = start_ns

    def __len__(self) -> int:
        return sum(map(len, self._ranges))

    @property
    def items_each(self) -> float | None:
        """The number of items of every entry of the series. None where they differ."""
        return _constant(self.series.n)

    def items(self) -> float:
        """Return the number of items in all of them."""
        return self._total(self.series.n)

    def steps(self) -> int:
        """Return the number of their steps."""
        return int(self._total(self.series.steps))

    def seconds(self) -> float:
        """Return the sum of their durations, in seconds."""
        return self._whole / self.series.lasted_per_s

    def durations(self) -> Sequence[float] | None:
        """Return the time per item of each entry, in any unit. None where an entry has no items."""
        if self.items_each is not None:
            return self._lasted if self.items_each > 0 else None
        n = array("d", self._entries(self.series.n))
        return None if n and min(n) <= 0 else array("d", map(truediv, self._lasted, n))

    def rates(self) -> Iterator[Sequence[float]]:
        """Yield the rates of the entries, items a second, some at a time."""
        per_s, entries, each = self.series.lasted_per_s, self._entries(self.series.n), self.items_each
        for some in in_blocks(self._lasted):
            if each is not None:
                scaled = each * per_s
                yield [scaled / lasted for lasted in some]
            else:
                yield [n / lasted * per_s for n, lasted in zip(islice(entries, len(some)), some, strict=True)]

    def host_ns(self) -> int:
        """Return the sum of their durations on the host's clock, in nanoseconds."""
        series = self.series
        if isinstance(series, GeneralSeries):
            return sum(series.host(index) for indices in self._ranges for index in indices)
        if series.host_ns is None:
            return int(self._whole)
        column = memoryview(series.host_ns)
        return sum(sum(column[indices.start : indices.stop]) for indices in self._ranges)

    def steps_before(self) -> int:
        """Return the number of steps of the series before the first of them."""
        return int(_sum(self.series.steps, self._ranges[0].start)) if self._ranges else 0

    def step_at(self, begin_ns: int) -> int:
        """Return the number in the repeat, from 1 on, of the first step that begins at a time or later."""
        index = next(index for indices in self._ranges for index in indices if self.series.t0_ns[index] >= begin_ns)
        return int(_sum(self.series.steps, index)) + 1

    def all_steps(self) -> int:
        """Return the number of steps of the whole series."""
        return int(_sum(self.series.steps, len(self.series.steps)))

    def spans(self) -> list[TimeSpan] | None:
        """Return the times in which they lie, each from the end of the step before it. None without a place on the clock.

        Time between two steps belongs to the later step: from a step's end to another's there are as many gaps as steps.
        """
        series = self.series
        if not self._ranges or (isinstance(series, GeneralSeries) and min(self._entries(series.middles)) < 0):
            return None
        return [TimeSpan(self._begin_ns(indices), self._end_ns(indices[-1])) for indices in self._ranges]

    def cycles(self, pauses: Sequence[TimeSpan] = ()) -> Cycles | None:
        """Return the times from the end of each to the end of the next, without `pauses`. None if they have no order."""
        spans = self.spans()
        if spans is None:
            return None
        size = math.ceil(len(self) / _CYCLES) or 1
        cycles = Cycles(size=size, items=None if self.items_each is not None else [])
        epochs = self._epoch_begins()
        for indices, span in zip(self._ranges, spans, strict=True):
            starts = range(indices.start, indices.stop, size)
            bounds = [span.start_ns, *(self._end_ns(start - 1) for start in starts[1:]), span.stop_ns]
            own = list(map(sub, bounds[1:], bounds))
            if min(own) < 0:
                return None
            for pause in pauses:
                index = max(0, bisect_right(bounds, pause.start_ns) - 1)
                while index < len(own) and bounds[index] < pause.stop_ns:
                    own[index] -= max(0, min(bounds[index + 1], pause.stop_ns) - max(bounds[index], pause.start_ns))
                    index += 1
            cycles.epochs.extend(len(cycles.ns) + (at - indices.start) // size for at in epochs if at in indices)
            cycles.ns.extend(own)
            cycles.begins_ns.extend(bounds[:-1])
            if cycles.items is not None:
                stops = [*starts[1:], indices.stop]
                cycles.items.extend(math.fsum(self.series.n[i:j]) for i, j in zip(starts, stops, strict=True))
        return cycles

    def epoch_gaps(self) -> list[TimeSpan]:
        """Return the times between the end of an epoch and the begin of the next."""
        begins = (index for index in self._epoch_begins() if any(index in indices for indices in self._ranges))
        gaps = (TimeSpan(self._end_ns(index - 1), self.series.t0_ns[index]) for index in begins)
        return [gap for gap in gaps if gap.start_ns < gap.stop_ns]

    def _epoch_begins(self) -> list[int]:
        """Return the indices in the series of the entries that follow the end of an epoch."""
        ends = (indices for indices, is_end in self.series.epoch_end.runs() if is_end)
        return [index + 1 for indices in ends for index in indices]

    def overlap_ns(self, span: TimeSpan) -> int:
        """Return the nanoseconds that the steps themselves have in common with a span."""
        series, common = self.series, 0
        for indices in self._ranges:
            first = indices.start
            if not isinstance(series, GeneralSeries):
                first = max(first, bisect_right(series.t0_ns, span.start_ns, indices.start, indices.stop) - 1)
            for index in range(first, indices.stop):
                begin_ns = series.t0_ns[index]
                if begin_ns >= span.stop_ns and not isinstance(series, GeneralSeries):
                    break
                common += max(0, min(begin_ns + series.host(index), span.stop_ns) - max(begin_ns, span.start_ns))
        return common

    def overlapped_ns(self) -> int:
        """Return the nanoseconds in which a step had begun before the previous step ended."""
        series = self.series
        begins: Iterator[int]
        ends: Iterator[int]
        if isinstance(series, GeneralSeries):  # in any order
            indices = sorted(chain.from_iterable(self._ranges), key=series.t0_ns.__getitem__)
            begins, ends = map(series.t0_ns.__getitem__, indices), map(self._end_ns, indices)
        else:  # of millions no list is made
            t0_ns, host_ns = memoryview(series.t0_ns), memoryview(series.host_ns or series.lasted)
            begins, ends = self._entries(t0_ns), map(add, self._entries(t0_ns), self._entries(host_ns))
        return sum(over for over in map(sub, ends, islice(begins, 1, None)) if over > 0)

    def items_inside(self, span: TimeSpan) -> float:
        """Return the number of items of those that begin and end in a span."""
        inside = self.within(span)
        return math.fsum(self.series.n[i] for each in inside._ranges for i in each if self._end_ns(i) <= span.stop_ns)

    def within(self, span: TimeSpan) -> Part:
        """Return those that begin in a span."""
        t0_ns, ranges = self.series.t0_ns, []
        for indices in self._ranges:
            if isinstance(self.series, CompactSeries):  # in order
                first = bisect_left(t0_ns, span.start_ns, indices.start, indices.stop)
                ranges.append(range(first, bisect_left(t0_ns, span.stop_ns, first, indices.stop)))
                continue
            inside = [index for index in indices if span.start_ns <= t0_ns[index] < span.stop_ns]
            if inside:
                ranges.append(range(inside[0], inside[-1] + 1))
        return Part(self.series, ranges, self._start_ns)

    def _begin_ns(self, indices: range) -> int:
        first_ns = self.series.t0_ns[indices.start]
        before_ns = self._end_ns(indices.start - 1) if indices.start else first_ns
        return min(first_ns, max(self._start_ns, before_ns))

    def _end_ns(self, index: int) -> int:
        return self.series.t0_ns[index] + self.series.host(index)

    def begin_ns(self) -> int:
        """Return when the first began, in monotonic nanoseconds. -1 where that is not known."""
        return self.series.t0_ns[self._ranges[0].start] if self._ranges else -1

    def after(self, count: int) -> Part:
        """Return all but the first `count`. All of them where nothing would be left."""
        left, ranges = count, []
        for indices in self._ranges:
            ranges.append(indices[min(left, len(indices)) :])
            left -= min(left, len(indices))
        rest = Part(self.series, ranges, self._start_ns)
        return rest if len(rest) else self

    def is_alike(self, count: int) -> bool:
        """Return whether the first `count` have equal items to the others, except for a smaller last batch now and then."""
        rest = self.after(count)
        if self.items_each is not None or not 0 < count < len(self):
            return True
        return abs((self.items() - rest.items()) / count * len(rest) / rest.items() - 1) < _ALIKE

    @cached_property
    def step_order(self) -> OrderStatistics:
        """The order statistics of the durations of the entries, in the series' unit."""
        return order_statistics(self._lasted, QUANTILES.values())

    @cached_property
    def _whole(self) -> float:
        """The sum of the durations: of whole nanoseconds exact, of seconds rounded once."""
        series = self.series
        if isinstance(series, GeneralSeries):
            return math.fsum(self._lasted)
        # Nearly all of the series is in the part: of the rest there is less to add up.
        column = memoryview(series.lasted)
        begins, ends = [0, *(each.stop for each in self._ranges)], [*(each.start for each in self._ranges), len(column)]
        return series.whole_ns - sum(sum(column[i:j]) for i, j in zip(begins, ends, strict=True))

    @cached_property
    def _lasted(self) -> Sequence[float]:
        """The durations in the series' unit: a view where they lie together, as they nearly always do."""
        # A slice of an array would copy it; this is called for every number that a part adds up to.
        whole = memoryview(self.series.lasted)
        if len(self._ranges) == 1:
            return whole[self._ranges[0].start : self._ranges[0].stop]
        joined = array(self.series.lasted.typecode)
        for indices in self._ranges:
            joined.extend(whole[indices.start : indices.stop])
        return joined

    def _entries(self, column: Sequence[T]) -> Iterator[T]:
        return chain.from_iterable(column[indices.start : indices.stop] for indices in self._ranges)

    def _total(self, column: Sequence[float]) -> float:
        constant = _constant(column)
        return math.fsum(self._entries(column)) if constant is None else constant * len(self)


def _sum(column: Sequence[float], count: int) -> float:
    """Return the sum of the first `count`."""
    constant = _constant(column)
    return math.fsum(column[:count]) if constant is None else constant * count


def _constant(column: Sequence[float]) -> float | None:
    return column.constant if isinstance(column, RunLengths) else None


def latency(part: Part) -> dict[str, float]:
    """Return seconds per step: minimum, maximum, and the quantiles (R7) that this number of steps bounds with 95 % confidence.

    Empty where entries have several steps: of these only the mean is known.
    """
    count, scale = len(part), 1 / part.series.lasted_per_s
    if not count or part.steps() > count:
        return {}
    order = part.step_order
    bounded = {name: order.quantiles[q] for name, q in QUANTILES.items() if count >= most_bounds(q)}
    return {name: scale * value for name, value in {"min": order.least, **bounded, "max": order.most}.items()}
