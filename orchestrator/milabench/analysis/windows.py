"""The part of a series that counts, after warm-up and inside the window, and what it adds up to.

A part reads millions of observations without copying them.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise, repeat
from operator import rshift, truediv
from typing import Protocol

from milabench.analysis.intervals import most_bounds
from milabench.analysis.sample_statistics import quantile
from milabench.analysis.series import Columns, Runs, Series

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_SORTED = 50_000  # up to so many values are sorted for a quantile; more are counted in buckets first
_BUCKETS = 1 << 16


class Bounds(Protocol):
    """A window, as far as it is needed here: monotonic nanoseconds."""

    @property
    def start_ns(self) -> int: ...
    @property
    def stop_ns(self) -> int: ...


def part_of(series: Series, window: Bounds | None) -> Part:
    """Return the observations after warm-up and, where a window was declared, inside it.

    One belongs to the window that holds its middle, so that a bound which is off by a clock reading cuts nothing.
    """
    kept: list[range] = []
    for indices, is_warmup in series.warmup.runs():
        if is_warmup:
            continue
        if window is None:
            kept.append(indices)
        elif isinstance(series, Columns):  # in no order; what has no place on the clock stays
            middles = ((index, series.middles[index]) for index in indices)
            outside = (i for i, middle in middles if middle >= 0 and not window.start_ns <= middle <= window.stop_ns)
            cuts = [indices.start - 1, *outside, indices.stop]
            kept += [range(before + 1, after) for before, after in pairwise(cuts)]
        else:
            first = bisect_left(indices, window.start_ns, key=series.middle)
            kept.append(indices[first : bisect_right(indices, window.stop_ns, key=series.middle)])
    return Part(series, kept)


def later_half(series: Series) -> Part:
    """Return the later half of a series that never left its warm-up: shown, as a number that is not steady."""
    length = len(series.lasted)
    return Part(series, [range((length + 1) // 2, length)])


class Part:
    """Some observations of one rank, in order: ranges of the indices of its series."""

    def __init__(self, series: Series, ranges: Sequence[range]) -> None:
        self.series = series
        self._ranges = [indices for indices in ranges if indices]

    def __len__(self) -> int:
        return sum(map(len, self._ranges))

    @property
    def items_each(self) -> float | None:
        """The number of items of every entry of the series; None where they differ."""
        return _constant(self.series.n)

    def items(self) -> float:
        """Return the number of items in all of them."""
        return self._total(self.series.n)

    def steps(self) -> int:
        """Return the number of steps that they stand for."""
        return int(self._total(self.series.steps))

    def seconds(self) -> float:
        """Return the sum of their durations, in seconds."""
        return math.fsum(self._lasted()) / self.series.lasted_per_s

    def durations(self) -> Sequence[float] | None:
        """Return the time per item of each entry, in any one unit; None where an entry has no items."""
        if self.items_each is not None:
            return self._lasted() if self.items_each > 0 else None
        n = array("d", self._entries(self.series.n))
        return None if n and min(n) <= 0 else array("d", map(truediv, self._lasted(), n))

    def rates(self) -> Iterable[float]:
        """Return the rate of each entry, items a second."""
        per_s = self.series.lasted_per_s
        if self.items_each is not None:
            scaled = self.items_each * per_s
            return (scaled / lasted for lasted in self._lasted())
        return (n / lasted * per_s for n, lasted in zip(self._entries(self.series.n), self._lasted(), strict=True))

    def step_seconds(self) -> tuple[Sequence[float], float]:
        """Return the time per step of each entry, and the factor that converts it to seconds."""
        steps, scale = _constant(self.series.steps), 1 / self.series.lasted_per_s
        if steps is not None:
            return self._lasted(), scale / max(1.0, steps)
        each = (max(1.0, steps) for steps in self._entries(self.series.steps))
        return array("d", map(truediv, self._lasted(), each)), scale

    def wall_s(self, *, has_gaps: bool = False) -> float | None:
        """Return seconds on the host from the first step's begin to the last one's end, with or without what follows epochs.

        What lies between two other steps counts: it is part of the loop. None when a step has no place on the clock.
        """
        series = self.series
        if not self._ranges or (isinstance(series, Columns) and min(self._entries(series.middles)) < 0):
            return None
        last = self._ranges[-1].stop - 1
        gaps = 0 if has_gaps else sum(self._gaps(last))
        return (series.t0_ns[last] + series.host(last) - self.begin_ns() - gaps) / 1e9

    def _gaps(self, last: int) -> Iterator[int]:
        """Yield nanoseconds between each end of an epoch and what counts next."""
        series = self.series
        after = {earlier.stop - 1: later.start for earlier, later in pairwise(self._ranges)}
        for run, is_end in series.epoch_end.runs():
            for index in run if is_end else ():
                if index != last and any(index in indices for indices in self._ranges):
                    follower = after.get(index, index + 1)
                    yield max(0, series.t0_ns[follower] - series.t0_ns[index] - series.host(index))

    def begin_ns(self) -> int:
        """Return when the first began, in monotonic nanoseconds; -1 where that is not known."""
        return self.series.t0_ns[self._ranges[0].start] if self._ranges else -1

    def after(self, count: int) -> Part:
        """Return all but the first so many; all of them where nothing would be left."""
        left, ranges = count, []
        for indices in self._ranges:
            ranges.append(indices[min(left, len(indices)) :])
            left -= min(left, len(indices))
        rest = Part(self.series, ranges)
        return rest if len(rest) else self

    def _lasted(self) -> Sequence[float]:
        """Return the durations in the series' unit: a view where they lie together, as they nearly always do."""
        whole = memoryview(self.series.lasted)
        if len(self._ranges) == 1:
            return whole[self._ranges[0].start : self._ranges[0].stop]
        joined = array(self.series.lasted.typecode)
        for indices in self._ranges:
            joined.extend(whole[indices.start : indices.stop])
        return joined

    def _entries(self, column: Sequence[float]) -> Iterator[float]:
        return chain.from_iterable(column[indices.start : indices.stop] for indices in self._ranges)

    def _total(self, column: Sequence[float]) -> float:
        constant = _constant(column)
        return math.fsum(self._entries(column)) if constant is None else constant * len(self)


def _constant(column: Sequence[float]) -> float | None:
    return column.constant if isinstance(column, Runs) else None


def latency(part: Part) -> dict[str, float]:
    """Return seconds per step: minimum, maximum, and the quantiles (R7) that so many steps bound with 95 % confidence."""
    values, scale = part.step_seconds()
    if not len(values):
        return {}
    bounded = {name: q for name, q in QUANTILES.items() if len(values) >= most_bounds(q)}
    by_name = dict(zip(bounded, quantiles(values, list(bounded.values())), strict=True))
    return {name: scale * value for name, value in {"min": min(values), **by_name, "max": max(values)}.items()}


def quantiles(values: Sequence[float], qs: Sequence[float]) -> list[float]:
    """Return the quantiles (R7) of numbers; very many integers are not copied and sorted."""
    if len(values) <= _SORTED or not isinstance(values[0], int):
        ordered = sorted(values)
        return [quantile(ordered, q) for q in qs]
    whole: Sequence[int] = values  # type: ignore[assignment]  # the first says what all are
    least = min(whole)
    shift = max(0, (max(whole) - least).bit_length() - _BUCKETS.bit_length() + 1)
    counts = Counter(map(rshift, whole, repeat(shift)))
    ranks = sorted({rank for q in qs for rank in _ranks(q, len(whole))})
    # Which bucket holds each rank, and how many values lie before that bucket.
    wanted: dict[int, int] = {}
    homes: dict[int, int] = {}
    before, next_rank = 0, 0
    for bucket in sorted(counts):
        while next_rank < len(ranks) and ranks[next_rank] < before + counts[bucket]:
            wanted[bucket], homes[ranks[next_rank]] = before, bucket
            next_rank += 1
        before += counts[bucket]
    kept: dict[int, list[int]] = {bucket: [] for bucket in wanted}
    for value in whole:
        bucket = value >> shift
        if bucket in kept:
            kept[bucket].append(value)
    ordered_of = {bucket: sorted(value_at) for bucket, value_at in kept.items()}
    value_at = {rank: ordered_of[homes[rank]][rank - wanted[homes[rank]]] for rank in ranks}
    results = []
    for q in qs:
        position = q * (len(whole) - 1)
        low, high = _ranks(q, len(whole))
        results.append(value_at[low] + (position - low) * (value_at[high] - value_at[low]))
    return results


def _ranks(q: float, length: int) -> tuple[int, int]:
    low = math.floor(q * (length - 1))
    return low, min(low + 1, length - 1)
