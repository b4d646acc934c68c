"""The part of a series that counts, after warm-up and inside the window, and what it adds up to.

A `Part` of a compact series reads millions of observations without copying them; one of any other series is as general as
it is slow. Both give the same numbers.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from operator import rshift
from typing import Protocol

from milabench.analysis.sample_statistics import quantile
from milabench.analysis.series import Compact, Series
from milabench.analysis.steady_state import busy_s
from milabench.analysis.variance import most_bounds

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_SORTED = 50_000  # up to so many values are sorted for a quantile; more are counted in buckets first
_BUCKETS = 1 << 16


class Bounds(Protocol):
    """A window, as far as it is needed here: monotonic nanoseconds."""

    @property
    def start_ns(self) -> int: ...
    @property
    def stop_ns(self) -> int: ...


class Part(Protocol):
    """Some observations of one rank, in order."""

    @property
    def rank(self) -> int: ...
    def __len__(self) -> int: ...
    def items(self) -> float:
        """Return the number of items in all of them."""

    def seconds(self) -> float:
        """Return the sum of their durations, in seconds."""

    def steps(self) -> int:
        """Return the number of steps that they stand for."""

    def durations(self) -> Sequence[float] | None:
        """Return the time per item of each entry, in any one unit; None where an entry has no items."""

    def rates(self) -> Iterable[float]:
        """Return the rate of each entry, items a second."""

    def step_seconds(self) -> tuple[Sequence[float], float]:
        """Return the time per step of each entry, and the factor that converts it to seconds."""

    def wall_s(self, *, has_gaps: bool = False) -> float | None:
        """Return seconds on the host's clock from the first to the last, with or without what follows epochs; see `busy_s`."""

    def begin_ns(self) -> int:
        """Return when the first began, in monotonic nanoseconds; -1 where that is not known."""

    def after(self, count: int) -> Part:
        """Return all but the first so many; all of them where nothing would be left."""


def part_of(series: Series, window: Bounds | None) -> Part:
    """Return the observations after warm-up and, where a window was declared, inside it.

    One belongs to the window that holds its middle, so that a bound which is off by a clock reading cuts nothing.
    """
    if series.compact is not None:
        return CompactPart(series.rank, series.compact, _kept(series.compact, window))
    return GeneralPart(series, in_window(series, window))


def later_half(series: Series) -> Part:
    """Return the later half of a series that never left its warm-up: shown, as a number that is not steady."""
    length = len(series.warmup)
    half = range((length + 1) // 2, length)
    return CompactPart(series.rank, series.compact, [half]) if series.compact is not None else GeneralPart(series, half)


def in_window(series: Series, window: Bounds | None) -> list[int]:
    """Return the indices that `part_of` keeps."""
    kept = [index for index, is_warmup in enumerate(series.warmup) if not is_warmup]
    if window is None:
        return kept
    middles = ((index, series.middle_ns[index]) for index in kept)
    return [index for index, middle in middles if middle < 0 or window.start_ns <= middle <= window.stop_ns]


def _kept(series: Compact, window: Bounds | None) -> list[range]:
    kept = []
    for indices, is_warmup in series.warmup.runs():
        if is_warmup:
            continue
        if window is None:
            kept.append(indices)
            continue
        first = bisect_left(indices, window.start_ns, key=series.middle)
        last = bisect_right(indices, window.stop_ns, key=series.middle)
        if first < last:
            kept.append(indices[first:last])
    return kept


class GeneralPart:
    """A part of any series, by indices."""

    def __init__(self, series: Series, indices: Sequence[int]) -> None:
        self._series = series
        self._places = indices
        self.rank = series.rank

    def __len__(self) -> int:
        return len(self._places)

    def items(self) -> float:
        return math.fsum(self._series.n[index] for index in self._places)

    def seconds(self) -> float:
        return math.fsum(self._series.elapsed[index] for index in self._places)

    def steps(self) -> int:
        return sum(self._series.steps[index] for index in self._places)

    def durations(self) -> Sequence[float] | None:
        series = self._series
        if any(series.n[index] <= 0 for index in self._places):
            return None
        return [series.elapsed[index] / series.n[index] for index in self._places]

    def rates(self) -> Iterable[float]:
        series = self._series
        return (series.n[index] / series.elapsed[index] for index in self._places)

    def step_seconds(self) -> tuple[Sequence[float], float]:
        series = self._series
        return [series.elapsed[index] / max(1, series.steps[index]) for index in self._places], 1.0

    def wall_s(self, *, has_gaps: bool = False) -> float | None:
        series = self._series
        begins = [series.t0_ns[index] for index in self._places]
        lasted = [2 * (series.middle_ns[index] - series.t0_ns[index]) for index in self._places]
        return busy_s(begins, lasted, [not has_gaps and series.epoch_end[index] for index in self._places])

    def begin_ns(self) -> int:
        return self._series.t0_ns[self._places[0]] if self._places else -1

    def after(self, count: int) -> Part:
        return GeneralPart(self._series, self._places[count:] or self._places)


class CompactPart:
    """A part of a compact series, by ranges of indices."""

    def __init__(self, rank: int, series: Compact, ranges: Sequence[range]) -> None:
        self._series = series
        self._ranges = [indices for indices in ranges if indices]
        self.rank = rank
        self._constant = series.n.constant

    def __len__(self) -> int:
        return sum(map(len, self._ranges))

    def _ns(self) -> Sequence[int]:
        """Return the nanoseconds: a view where they lie together, as they nearly always do."""
        whole = memoryview(self._series.ns)
        if len(self._ranges) == 1:
            return whole[self._ranges[0].start : self._ranges[0].stop]
        joined = array("I")
        for indices in self._ranges:
            joined.extend(whole[indices.start : indices.stop])
        return joined

    def _places(self) -> Iterable[int]:
        return (index for indices in self._ranges for index in indices)

    def items(self) -> float:
        if self._constant is not None:
            return self._constant * len(self)
        return math.fsum(self._series.n[index] for index in self._places())

    def seconds(self) -> float:
        return sum(self._ns()) / 1e9

    def steps(self) -> int:
        constant = self._series.steps.constant
        if constant is not None:
            return int(constant) * len(self)
        return int(math.fsum(self._series.steps[index] for index in self._places()))

    def durations(self) -> Sequence[float] | None:
        if self._constant is not None:
            return self._ns() if self._constant > 0 else None
        n, ns = self._series.n, self._series.ns
        durations = array("d")
        for index in self._places():
            if n[index] <= 0:
                return None
            durations.append(ns[index] / n[index])
        return durations

    def rates(self) -> Iterable[float]:
        n, ns = self._series.n, self._series.ns
        if self._constant is not None:
            constant, view = self._constant * 1e9, self._ns()
            return (constant / duration_ns for duration_ns in view)
        return (n[index] / ns[index] * 1e9 for index in self._places())

    def step_seconds(self) -> tuple[Sequence[float], float]:
        constant = self._series.steps.constant
        if constant is not None:
            return self._ns(), 1e-9 / max(1.0, constant)
        steps, ns = self._series.steps, self._series.ns
        return array("d", (ns[index] / max(1.0, steps[index]) for index in self._places())), 1e-9

    def wall_s(self, *, has_gaps: bool = False) -> float | None:
        series = self._series
        if not self._ranges:
            return None
        first, last = self._ranges[0].start, self._ranges[-1].stop - 1
        gaps = 0 if has_gaps else sum(self._gaps(last))
        return (series.t0_ns[last] + series.host(last) - series.t0_ns[first] - gaps) / 1e9

    def begin_ns(self) -> int:
        return self._series.t0_ns[self._ranges[0].start] if self._ranges else -1

    def _gaps(self, last: int) -> Iterable[int]:
        """Yield nanoseconds between each end of an epoch and what counts next."""
        series = self._series
        after = {earlier.stop - 1: later.start for earlier, later in pairwise(self._ranges)}
        for run, is_end in series.epoch_end.runs():
            for index in run if is_end else ():
                if index != last and any(index in indices for indices in self._ranges):
                    follower = after.get(index, index + 1)
                    yield max(0, series.t0_ns[follower] - series.t0_ns[index] - series.host(index))

    def after(self, count: int) -> Part:
        left, ranges = count, []
        for indices in self._ranges:
            ranges.append(indices[min(left, len(indices)) :])
            left -= min(left, len(indices))
        rest = CompactPart(self.rank, self._series, ranges)
        return rest if len(rest) else self


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
