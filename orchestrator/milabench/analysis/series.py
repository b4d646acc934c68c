"""The observations of a step, column by column, while they are read and after."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import not_
from typing import Any

from milabench.analysis.compact_columns import Derived, Runs
from milabench.events.model import ObservationBatch
from milabench.events.numbers import SMALLEST, finite_number, positive, whole

_COLUMNS = ("t0_ns", "middle_ns", "elapsed", "n", "rate", "end", "steps", "warmup", "epoch_end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The observations of one task on one rank, in order, column by column (a run may have millions).

    `t0_ns` (begin) and `middle_ns` are monotonic on the host's clock, -1 where unknown; `elapsed` in seconds, on the
    device where it has a clock; `n` items; `rate` items a second; `end` the unix time of the end, nan where unknown;
    `steps` how many steps an entry stands for; `warmup` 1 for warm-up; `epoch_end` 1 for the last of a loop. In records of
    milabench 1.3 `elapsed` and `n` are nan.

    `compact` holds the same in few bytes where every observation was plain and in order, the columns then following from it.
    """

    task: str
    rank: int
    units: str
    t0_ns: Sequence[int]
    middle_ns: Sequence[int]
    elapsed: Sequence[float]
    n: Sequence[float]
    rate: Sequence[float]
    end: Sequence[float]
    steps: Sequence[int]
    warmup: Sequence[int]
    epoch_end: Sequence[int]
    compact: Compact | None = None

    @property
    def has_totals(self) -> bool:
        """Whether every entry says its items and its seconds."""
        return self.compact is not None or not math.isnan(math.fsum(self.elapsed))


@dataclass(slots=True)
class Compact:
    """Plain observations in 12 bytes each, 16 where the device has a clock of its own; `host_ns` is None where it is `ns`.

    `offset` is unix time less monotonic time, in seconds. `is_ordered`: each begins no earlier than the one before it.
    """

    units: str
    offset: float
    t0_ns: array[int] = field(default_factory=lambda: array("q"))
    ns: array[int] = field(default_factory=lambda: array("I"))
    host_ns: array[int] | None = None
    n: Runs = field(default_factory=Runs)
    steps: Runs = field(default_factory=Runs)
    warmup: Runs = field(default_factory=Runs)
    epoch_end: Runs = field(default_factory=Runs)
    is_ordered: bool = True

    def extend(self, batch: ObservationBatch) -> None:
        """Append a batch."""
        last = self.t0_ns[-1] if self.t0_ns else 0
        self.is_ordered &= (
            batch.t0_ns[0] >= last and sorted(batch.t0_ns) == batch.t0_ns
        )  # what is in order sorts at once
        if self.host_ns is None and batch.host_ns is not batch.ns:
            self.host_ns = array("I", self.ns)
        self.t0_ns.extend(batch.t0_ns)
        self.ns.extend(batch.ns)
        if self.host_ns is not None:
            self.host_ns.extend(batch.host_ns)
        self.n.extend(batch.n)
        self.steps.extend(batch.steps)
        self.warmup.extend(batch.warmup)
        self.epoch_end.extend(batch.epoch_end)

    def host(self, index: int) -> int:
        """Return the duration of an entry on the host's clock, in nanoseconds."""
        return (self.ns if self.host_ns is None else self.host_ns)[index]

    def middle(self, index: int) -> int:
        """Return the middle of an entry, monotonic nanoseconds."""
        return self.t0_ns[index] + self.host(index) // 2

    def end(self, index: int) -> float:
        """Return the end of an entry in unix seconds, on the host's clock."""
        return self.offset + (self.t0_ns[index] + self.host(index)) / 1e9

    def series(self, task: str, rank: int) -> Series:
        """Return the same as a series."""
        length = len(self.ns)
        return Series(
            task=task,
            rank=rank,
            units=self.units,
            t0_ns=self.t0_ns,
            middle_ns=Derived(length, self.middle),
            elapsed=Derived(length, lambda index: self.ns[index] / 1e9),
            n=self.n,
            rate=Derived(length, lambda index: self.n[index] / self.ns[index] * 1e9),
            end=Derived(length, self.end),
            steps=Derived(length, lambda index: int(self.steps[index])),
            warmup=Derived(length, lambda index: int(self.warmup[index])),
            epoch_end=Derived(length, lambda index: int(self.epoch_end[index])),
            compact=self if self.is_ordered else None,
        )


@dataclass(slots=True)
class Columns:
    """A series that is still growing, of observations that may lack anything."""

    units: str = ""
    t0_ns: array[int] = field(default_factory=lambda: array("q"))
    middle_ns: array[int] = field(default_factory=lambda: array("q"))
    elapsed: array[float] = field(default_factory=lambda: array("d"))
    n: array[float] = field(default_factory=lambda: array("d"))
    rate: array[float] = field(default_factory=lambda: array("d"))
    end: array[float] = field(default_factory=lambda: array("d"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    warmup: array[int] = field(default_factory=lambda: array("b"))
    epoch_end: array[int] = field(default_factory=lambda: array("b"))

    def add(self, data: Mapping[str, Any]) -> None:
        """Append one observation, unless nothing in it can be used."""
        rate, elapsed, n = finite_number(data.get("rate")), positive(data.get("elapsed")), finite_number(data.get("n"))
        if elapsed is None or n is None or (n and n < SMALLEST):
            if rate is None:
                return  # nothing in it can be used; the check `rate` reports it
            elapsed = n = math.nan
        end = finite_number(data.get("time"))
        self.units = self.units or str(data.get("units", ""))
        t0_ns, host_ns = whole(data.get("t0_ns"), -1), finite_number(data.get("host_ns"))
        # The device works behind the host, so that its times say nothing about where on the host's clock a step lies.
        half_ns = host_ns / 2 if host_ns is not None else elapsed * 5e8
        is_placed = t0_ns >= 0 and 0 <= half_ns < 2**62 and t0_ns < 2**62
        self.t0_ns.append(t0_ns)
        self.middle_ns.append(t0_ns + int(half_ns) if is_placed else -1)
        self.elapsed.append(elapsed)
        self.n.append(n)
        self.rate.append(n / elapsed if rate is None else rate)
        self.end.append(math.nan if end is None else end)
        self.steps.append(whole(data.get("steps"), 1))
        self.warmup.append(1 if data.get("warmup") else 0)
        self.epoch_end.append(1 if data.get("epoch_end") else 0)

    def series(self, task: str, rank: int) -> Series:
        return Series(task=task, rank=rank, units=self.units, **{name: getattr(self, name) for name in _COLUMNS})

    def extend(self, series: Series) -> None:
        """Append what was compact so far."""
        self.units = self.units or series.units
        for name in _COLUMNS:
            getattr(self, name).extend(getattr(series, name))


class Growing:
    """A series while it is read: compact as long as its observations come in batches, else column by column."""

    def __init__(self) -> None:
        self._compact: Compact | None = None
        self._columns: Columns | None = None
        self._waited = 0.0
        self._worked = 0.0

    def add_all(self, batch: ObservationBatch) -> None:
        """Append a batch of plain observations."""
        if batch.wait is not None:
            self._waited += batch.wait
            self._worked += sum(compress(batch.ns, map(not_, batch.warmup))) / 1e9
        if self._columns is None and (self._compact is None or self._compact.units == batch.units):
            if self._compact is None:
                self._compact = Compact(units=batch.units, offset=batch.end - (batch.t0_ns[0] + batch.host_ns[0]) / 1e9)
            self._compact.extend(batch)
            return
        single = Compact(units=batch.units, offset=batch.end - (batch.t0_ns[0] + batch.host_ns[0]) / 1e9)
        single.extend(batch)
        self._expanded().extend(single.series("", 0))

    def add(self, data: Mapping[str, Any]) -> None:
        """Append one observation, whatever it lacks."""
        self._expanded().add(data)
        parts, elapsed = data.get("parts"), finite_number(data.get("elapsed"))
        wait = finite_number(parts.get("wait")) if isinstance(parts, Mapping) else None
        if wait is not None and elapsed is not None and not data.get("warmup"):
            self._waited += wait
            self._worked += elapsed

    def _expanded(self) -> Columns:
        if self._columns is None:
            self._columns = Columns()
            if self._compact is not None:
                self._columns.extend(self._compact.series("", 0))
                self._compact = None
        return self._columns

    @property
    def waiting(self) -> tuple[float, float]:
        """Return the seconds spent waiting for data after warm-up, and the seconds of the steps that reported it."""
        return self._waited, self._worked

    def series(self, task: str, rank: int) -> Series | None:
        """Return what was read; None when nothing of it can be used."""
        if self._compact is not None:
            return self._compact.series(task, rank)
        series = self._columns.series(task, rank) if self._columns is not None else None
        return series if series is not None and series.rate else None
