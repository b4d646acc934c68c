"""The observations of a step, column by column, while they are read and after (a run may have millions).

They are compact as long as they come in batches and in order: repeated values are kept once, values that follow from
another column not at all. Anything else is kept as general as it is large.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, islice, repeat
from operator import not_, sub
from typing import ClassVar, overload

from milabench.events.model import ObservationBatch
from milabench.events.values import SMALLEST_NUMBER, finite_number, positive, whole


class RunLengths(Sequence[float]):
    """Numbers that mostly repeat, as runs of equal numbers: 12 bytes each."""

    def __init__(self) -> None:
        self._values = array("d")
        self._ends = array("I")
        self._is_whole = True  # recorded without a point, as reports write it then

    def extend(self, values: Sequence[float]) -> None:
        """Append numbers, which must be exact as floats."""
        if not values:
            return
        # One comparison in C for a whole batch: nearly every batch only continues the last run.
        if self._values and values.count(self._values[-1]) == len(values):
            self._ends[-1] += len(values)
            return
        self._is_whole = self._is_whole and type(values[0]) is int
        for end, value in enumerate(values, len(self) + 1):
            if self._values and value == self._values[-1]:
                self._ends[-1] = end
            else:
                self._values.append(value)
                self._ends.append(end)

    @property
    def constant(self) -> float | None:
        """The value that all of them have. None where they differ, or there is none."""
        if len(self._values) != 1:
            return None
        return int(self._values[0]) if self._is_whole else self._values[0]

    def runs(self) -> Iterator[tuple[range, float]]:
        """Return the index range of each run with its number."""
        return zip(map(range, chain((0,), self._ends), self._ends), self._values, strict=True)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[float]:
        return self._numbers_from(0)

    def _numbers_from(self, run: int) -> Iterator[float]:
        # All of it in C: where every step has another number of items, there are as many runs.
        ends, values = memoryview(self._ends)[run:], memoryview(self._values)[run:]
        lengths = map(sub, ends, chain(self._ends[run - 1 : run] if run else (0,), ends))
        return chain.from_iterable(map(repeat, values, lengths))

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[float]: ...
    def __getitem__(self, index: int | slice) -> float | Sequence[float]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            run = bisect_right(self._ends, start)
            begin = self._ends[run - 1] if run else 0
            return list(islice(self._numbers_from(run), start - begin, max(start, stop) - begin, step))
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._values[bisect_right(self._ends, index)]


@dataclass(slots=True)
class CompactSeries:
    """Plain observations of a task on a rank, each beginning no earlier than the previous: 12 bytes each.

    `t0_ns` (begin) is monotonic on the host's clock. `lasted` is the duration in nanoseconds, on the device where it has a
    clock of its own. Only there is `host_ns`, another 4 bytes, the duration on the host. `whole_ns` is the sum of `lasted`. `n`
    counts items, `steps` the number of steps in an entry. `warmup` is 1 for warm-up, `epoch_end` 1 for the last of a loop.
    `offset` is unix time less monotonic time, in seconds.
    """

    task: str
    rank: int
    units: str
    offset: float
    t0_ns: array[int] = field(default_factory=lambda: array("Q"))
    lasted: array[int] = field(default_factory=lambda: array("I"))
    whole_ns: int = 0
    host_ns: array[int] | None = None
    n: RunLengths = field(default_factory=RunLengths)
    steps: RunLengths = field(default_factory=RunLengths)
    warmup: RunLengths = field(default_factory=RunLengths)
    epoch_end: RunLengths = field(default_factory=RunLengths)

    lasted_per_s: ClassVar = 1e9
    has_totals: ClassVar = True
    has_program_clock: ClassVar = False

    def is_continued_by(self, batch: ObservationBatch) -> bool:
        """Return whether the batch keeps the order and the units. Ordered values sort at once."""
        last = self.t0_ns[-1] if self.t0_ns else 0
        return self.units == batch.units and batch.t0_ns[0] >= last and sorted(batch.t0_ns) == batch.t0_ns

    def extend(self, batch: ObservationBatch) -> None:
        """Append a batch."""
        # The same list object means that both clocks are one: nothing is kept twice until a batch tells otherwise.
        if self.host_ns is None and batch.host_ns is not batch.ns:
            self.host_ns = array("I", self.lasted)
        # An array of a list, then bytes: to append the values one by one takes two to four times as long.
        self.t0_ns.extend(array("Q", batch.t0_ns))
        self.lasted.extend(array("I", batch.ns))
        self.whole_ns += sum(batch.ns)
        if self.host_ns is not None:
            self.host_ns.extend(array("I", batch.host_ns))
        self.n.extend(batch.n)
        self.steps.extend(batch.steps)
        self.warmup.extend(batch.warmup)
        self.epoch_end.extend(batch.epoch_end)

    def host(self, index: int) -> int:
        """Return the duration of an entry on the host's clock, in nanoseconds."""
        return (self.lasted if self.host_ns is None else self.host_ns)[index]

    def middle(self, index: int) -> int:
        """Return the middle of an entry, monotonic nanoseconds."""
        return self.t0_ns[index] + self.host(index) // 2

    def end(self, index: int) -> float:
        """Return the end of an entry in unix seconds, on the host's clock."""
        return self.offset + (self.t0_ns[index] + self.host(index)) / 1e9

    def rate(self, index: int) -> float:
        """Return the items a second of an entry."""
        return self.n[index] / self.lasted[index] * 1e9


@dataclass(slots=True)
class GeneralSeries:
    """Observations of a task on a rank in any order, which may lack any value: as a CompactSeries, but `lasted` in seconds.

    `t0_ns` and `middles` are -1 where unknown, `ends` nan. In records of milabench 1.3 `lasted` and `n` are nan.
    """

    task: str
    rank: int
    units: str = ""
    t0_ns: array[int] = field(default_factory=lambda: array("q"))
    lasted: array[float] = field(default_factory=lambda: array("d"))
    n: array[float] = field(default_factory=lambda: array("d"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    warmup: RunLengths = field(default_factory=RunLengths)
    epoch_end: RunLengths = field(default_factory=RunLengths)
    middles: array[int] = field(default_factory=lambda: array("q"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    rates: array[float] = field(default_factory=lambda: array("d"))
    has_totals: bool = True
    has_program_clock: bool = False
    """Whether rates came with the program's own clock, after a warm-up that our instruments knew."""

    lasted_per_s: ClassVar = 1.0

    def add(self, data: Mapping[str, object]) -> bool:
        """Append an observation. Return False where it is unusable: a duration not above zero, items that are no number."""
        rate, elapsed, n = finite_number(data.get("rate")), positive(data.get("elapsed")), finite_number(data.get("n"))
        if elapsed is None or n is None or (n and n < SMALLEST_NUMBER):
            if rate is None or (elapsed is None and "elapsed" in data) or (n is None and "n" in data):
                return False
            elapsed = n = math.nan  # milabench 1.3 recorded nothing but rates
            self.has_totals = False
            self.has_program_clock |= data.get("clock") == "program"
        end = finite_number(data.get("time"))
        self.units = self.units or str(data.get("units", ""))
        t0_ns, host_ns = whole(data.get("t0_ns"), -1), finite_number(data.get("host_ns"))
        # The device works behind the host, so that its times say nothing about where on the host's clock a step lies.
        half_ns = host_ns / 2 if host_ns is not None else elapsed * 5e8
        is_placed = t0_ns >= 0 and 0 <= half_ns < 2**62 and t0_ns < 2**62
        self.t0_ns.append(t0_ns)
        self.middles.append(t0_ns + int(half_ns) if is_placed else -1)
        self.lasted.append(elapsed)
        self.n.append(n)
        self.rates.append(n / elapsed if rate is None else rate)
        self.ends.append(math.nan if end is None else end)
        self.steps.append(whole(data.get("steps"), 1))
        self.warmup.extend((1 if data.get("warmup") else 0,))
        self.epoch_end.extend((1 if data.get("epoch_end") else 0,))
        return True

    def extend(self, compact: CompactSeries) -> None:
        """Append a compact series."""
        indices = range(len(compact.lasted))
        self.units = self.units or compact.units
        self.t0_ns.extend(iter(compact.t0_ns))
        self.lasted.extend(duration_ns / 1e9 for duration_ns in compact.lasted)
        self.n.extend(compact.n)
        self.steps.extend(map(int, compact.steps))
        self.warmup.extend(compact.warmup)
        self.epoch_end.extend(compact.epoch_end)
        self.middles.extend(map(compact.middle, indices))
        self.ends.extend(map(compact.end, indices))
        self.rates.extend(map(compact.rate, indices))

    def host(self, index: int) -> int:
        """Return the duration of an entry on the host's clock, in nanoseconds."""
        return 2 * (self.middles[index] - self.t0_ns[index])

    def middle(self, index: int) -> int:
        """Return the middle of an entry, monotonic nanoseconds. -1 where unknown."""
        return self.middles[index]

    def end(self, index: int) -> float:
        """Return the end of an entry in unix seconds. nan where unknown."""
        return self.ends[index]

    def rate(self, index: int) -> float:
        """Return the items a second of an entry, as it was recorded."""
        return self.rates[index]


Series = CompactSeries | GeneralSeries


class SeriesBuilder:
    """A series while it is read: compact as long as its observations come in batches and in order, else a general series.

    `waited_s` is the time spent waiting for data after warm-up, `worked_s` the time of the steps that reported it.
    `unusable` counts observations that were not numbers.
    """

    def __init__(self, task: str, rank: int) -> None:
        self._task, self._rank = task, rank
        self._series: Series | None = None
        self.waited_s = 0.0
        self.worked_s = 0.0
        self.unusable = 0

    def add_all(self, batch: ObservationBatch) -> None:
        """Append a batch of plain observations."""
        if batch.wait is not None:
            self.waited_s += batch.wait
            counted = compress(batch.ns, map(not_, batch.warmup)) if any(batch.warmup) else batch.ns
            self.worked_s += sum(counted) / 1e9
        series = self._compact(batch) if self._series is None else self._series
        if isinstance(series, CompactSeries) and series.is_continued_by(batch):
            self._series = series
            series.extend(batch)
            return
        # Once general, a series stays so: turning back would copy all of it again for every batch.
        single = self._compact(batch)
        single.extend(batch)
        self._expanded().extend(single)

    def _compact(self, batch: ObservationBatch) -> CompactSeries:
        offset = batch.end - (batch.t0_ns[0] + batch.host_ns[0]) / 1e9
        return CompactSeries(task=self._task, rank=self._rank, units=batch.units, offset=offset)

    def add(self, data: Mapping[str, object]) -> None:
        """Append an observation, whatever it lacks."""
        if not self._expanded().add(data):
            self.unusable += 1
            return
        parts, elapsed = data.get("parts"), finite_number(data.get("elapsed"))
        wait = finite_number(parts.get("wait")) if isinstance(parts, Mapping) else None
        if wait is not None and elapsed is not None and not data.get("warmup"):
            self.waited_s += wait
            self.worked_s += elapsed

    def _expanded(self) -> GeneralSeries:
        if not isinstance(self._series, GeneralSeries):
            columns = GeneralSeries(task=self._task, rank=self._rank)
            if self._series is not None:
                columns.extend(self._series)
            self._series = columns
        return self._series

    @property
    def series(self) -> Series | None:
        """The series. None when no observation can be used."""
        return self._series if self._series is not None and self._series.lasted else None
