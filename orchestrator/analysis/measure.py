"""One step's events -> what was measured in it: a rate, its spread within the process, memory, losses, other metrics.

The throughput is the ratio of totals over the window after warm-up: all items over all seconds, not the mean of rates.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from orchestrator.analysis.spread import geometric_mean, lag1, variation
from orchestrator.analysis.steady import Steadiness, agree, busy_s, steadiness
from orchestrator.events.model import Config, Data, End, Error, Event, Message, Meta, Other, Start, Verdict
from orchestrator.events.readings import Readings, energy_of

Direction = Literal["higher", "lower", "none"]

# How a number was got. `compat`: milabench 1.3 recorded rates without their items and seconds; their harmonic mean is
# the ratio of totals when all batches are of one size, and that is the best that can be said. `metric`: no observation,
# but a metric that the program flagged as its main one.
Basis = Literal["ratio-of-totals", "compat", "metric", "warm-up"]

_MIB = 2**20
_BYTES = {
    "B": 1.0,
    "bytes": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
}

# Which memory figure is "the" peak, best first: what the program's allocator held; what the device was seen to hold,
# other programs' memory included; what the processes held on the host.
_MEMORY = ("memory_reserved_peak", "memory_allocated_peak", "device_memory_peak", "host_memory_peak")

# milabench 1.3 marked no warm-up: discard as docs/methodology.md, 1.1 has it, but never more than half of what there is.
_COMPAT_WARMUP_RECORDS = 10
_COMPAT_WARMUP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The observations of one task on one rank, in order, column by column (a run may have millions).

    `t0_ns` (begin) and `middle_ns` are monotonic on the host's clock, -1 where unknown; `elapsed` in seconds, on the
    device where it has a clock; `n` items; `rate` items a second; `end` the unix time of the end, nan where unknown;
    `steps` how many steps an entry stands for; `warmup` 1 for warm-up; `epoch_end` 1 for the last of a loop. In records of
    milabench 1.3 `elapsed` and `n` are nan.
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

    @property
    def has_totals(self) -> bool:
        """Whether every entry says its items and its seconds."""
        return not math.isnan(math.fsum(self.elapsed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The measured window that the process declared; monotonic nanoseconds, and unix seconds where it said them."""

    start_ns: int
    stop_ns: int
    start: float | None = None
    stop: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What one rank did within the window: `observations` entries that stand for `steps` steps."""

    rank: int
    items: float
    seconds: float
    observations: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The number that a step stands for, and what it stands on.

    `spread_within` is the coefficient of variation of the rates of single observations in the window, `lag1` their
    autocorrelation, both on the slowest rank. `totals` is empty unless the basis is the ratio of totals. `steady` judges
    the slowest rank's window: what it found to be left over of the warm-up is not in the number. `doubts` are reasons to
    suspect it.
    """

    value: float
    units: str
    direction: Direction = "higher"
    basis: Basis = "ratio-of-totals"
    observations: int = 0
    totals: tuple[Totals, ...] = ()
    spread_within: float | None = None
    lag1: float | None = None
    steady: Steadiness | None = None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A scalar that a process reported, or that was computed from its records; `rank` is None for a lone process."""

    name: str
    value: float
    units: str = ""
    direction: Direction = "none"
    is_main: bool = False
    case: str = ""
    part: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """The losses of a step: `count` reported, of which `nonfinite` were no number."""

    first: float | None = None
    last: float | None = None
    count: int = 0
    nonfinite: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one step measured; `throughput` is None when there is no number to give."""

    step: str
    task: str = ""
    throughput: Throughput | None = None
    series: tuple[Series, ...] = ()
    window: Window | None = None
    losses: Losses = field(default_factory=Losses)
    metrics: tuple[Metric, ...] = ()
    end: End | None = None
    errors: tuple[Error, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    messages: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)

    def metric(self, name: str) -> float | None:
        """The largest value reported under this name, None when it was not."""
        return max((metric.value for metric in self.metrics if metric.name == name), default=None)

    @property
    def first_step_s(self) -> float | None:
        """Seconds from the start of the process to the end of its first step, compilation and all."""
        return self.metric("first_step")

    @property
    def energy_j(self) -> float | None:
        """Joules of the devices, summed over what was reported."""
        found = [metric.value for metric in self.metrics if metric.name == "energy"]
        return math.fsum(found) if found else None

    @property
    def memory_peak_mib(self) -> float | None:
        """The highest peak of the best kind of memory figure that there is (`_MEMORY`), in MiB."""
        for name in _MEMORY:
            peaks = [m.value * _BYTES[m.units] / _MIB for m in self.metrics if m.name == name and m.units in _BYTES]
            if peaks:
                return max(peaks)
        return None


def measure(step: str, events: Iterable[Event]) -> Measurement:
    """Everything that one step's events say, in one pass over them."""
    fold = _Fold()
    for event in events:
        fold.see(event)
    return fold.result(step)


def main_task(tasks: Iterable[str]) -> str:
    """The task whose rate is the step's: train, else inference, else the first seen; empty when there is none."""
    tasks = tuple(tasks)
    for task in ("train", "inference"):
        if task in tasks:
            return task
    return tasks[0] if tasks else ""


def rate_of(ranks: Sequence[Series], window: Window | None) -> Throughput | None:
    """The throughput of a job from its ranks' observations; None when none of them lies in the window."""
    if not all(series.has_totals for series in ranks):
        return _compat_rate(ranks)
    chosen = [(series, places) for series in ranks if (places := in_window(series, window))]
    basis: Basis = "ratio-of-totals"
    if not chosen:
        chosen = [(series, places) for series in ranks if (places := second_half(series))]
        basis = "warm-up"
    if not chosen:
        return None
    steady = _steadiness(chosen) if basis == "ratio-of-totals" else None
    if steady is not None and steady.settled_at and steady.is_steady:
        chosen = [(series, places[steady.settled_at :] or places) for series, places in chosen]
    rates = [[series.n[place] / series.elapsed[place] for place in places] for series, places in chosen]
    found = combined([_totals(series, places) for series, places in chosen], rates, units=ranks[0].units, basis=basis)
    if found is None:
        return None
    is_unsteady = basis == "warm-up" or (steady is not None and not steady.is_steady)
    doubts = ["no-steady-state"] if is_unsteady else []
    if not all(_clocks_agree(series, places) for series, places in chosen):
        doubts.append("clocks-disagree")
    return replace(found, steady=steady, doubts=tuple(doubts))


def _steadiness(ranks: Sequence[tuple[Series, list[int]]]) -> Steadiness | None:
    """How steady the slowest rank was in its window: seconds an item, so that a smaller last batch is not a faster one."""
    series, places = max(ranks, key=lambda rank: _totals(*rank).seconds)
    if any(series.n[place] <= 0 for place in places):
        return None
    return steadiness([series.elapsed[place] / series.n[place] for place in places])


def _clocks_agree(series: Series, places: Sequence[int]) -> bool:
    """Whether items over the sum of the steps' seconds is what items over the window's seconds on the host's clock is."""
    begins = [series.t0_ns[place] for place in places]
    lasted = [2 * (series.middle_ns[place] - series.t0_ns[place]) for place in places]
    wall_s = busy_s(begins, lasted, [series.epoch_end[place] for place in places])
    items, seconds = (
        math.fsum(series.n[place] for place in places),
        math.fsum(series.elapsed[place] for place in places),
    )
    return wall_s is None or wall_s <= 0 or agree(items / seconds, items / wall_s)


def second_half(series: Series) -> list[int]:
    """The places of the later half of a series that never left its warm-up: shown, as a number that is not steady."""
    return list(range((len(series.warmup) + 1) // 2, len(series.warmup)))


def combined(
    totals: Sequence[Totals], rates: Sequence[Sequence[float]], units: str, basis: Basis = "ratio-of-totals"
) -> Throughput | None:
    """The throughput of ranks that worked on one job: the items of all over the seconds of the slowest."""
    items = math.fsum(total.items for total in totals)
    slowest = max(range(len(totals)), key=lambda place: totals[place].seconds)
    if items <= 0:
        return None
    return Throughput(
        value=items / totals[slowest].seconds,
        units=units,
        basis=basis,
        observations=sum(total.observations for total in totals),
        totals=tuple(totals),
        spread_within=variation(rates[slowest]),
        lag1=lag1(rates[slowest]),
    )


def in_window(series: Series, window: Window | None) -> list[int]:
    """The places of a series' entries after warm-up and, where a window was declared, inside it.

    An entry belongs to the window that holds its middle, so that a bound which is off by a clock reading cuts nothing.
    """
    kept = [place for place, is_warmup in enumerate(series.warmup) if not is_warmup]
    if window is None:
        return kept
    middles = ((place, series.middle_ns[place]) for place in kept)
    return [place for place, middle in middles if middle < 0 or window.start_ns <= middle <= window.stop_ns]


def number(value: Any) -> float | None:
    """A finite number as a float; None for everything else that JSON can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _totals(series: Series, places: Sequence[int]) -> Totals:
    return Totals(
        rank=series.rank,
        items=math.fsum(series.n[place] for place in places),
        seconds=math.fsum(series.elapsed[place] for place in places),
        observations=len(places),
        steps=sum(series.steps[place] for place in places),
    )


def _compat_rate(ranks: Sequence[Series]) -> Throughput | None:
    """The rate of milabench 1.3 records: of each rank the harmonic mean after warm-up, summed over ranks."""
    rates = [kept for series in ranks if (kept := _compat_window(series))]
    if not rates:
        return None
    harmonic = [len(kept) / math.fsum(1 / rate for rate in kept) for kept in rates]
    slowest = rates[harmonic.index(min(harmonic))]
    return Throughput(
        value=math.fsum(harmonic),
        units=ranks[0].units,
        basis="compat",
        observations=sum(map(len, rates)),
        spread_within=variation(slowest),
        lag1=lag1(slowest),
    )


def _compat_window(series: Series) -> list[float]:
    kept = [place for place, is_warmup in enumerate(series.warmup) if not is_warmup and series.rate[place] > 0]
    if len(kept) == len(series.warmup) and kept:
        begin = series.end[kept[0]]
        early = sum(1 for place in kept if series.end[place] - begin < _COMPAT_WARMUP_S)  # nan compares false
        kept = kept[min(max(_COMPAT_WARMUP_RECORDS, early), len(kept) // 2) :]
    return [series.rate[place] for place in kept]


def _main_metric(metrics: Sequence[Metric]) -> Throughput | None:
    """The metric flagged as main; of several (cases, ranks) the geometric mean of those in the first one's units."""
    main = [metric for metric in metrics if metric.is_main and metric.value > 0]
    if not main:
        return None
    alike = [metric.value for metric in main if metric.units == main[0].units]
    return Throughput(
        value=geometric_mean(alike),
        units=main[0].units,
        direction=main[0].direction,
        basis="metric",
        observations=len(alike),
    )


@dataclass(slots=True)
class _Columns:
    """A series that is still growing."""

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
        rate, elapsed, n = number(data.get("rate")), number(data.get("elapsed")), number(data.get("n"))
        if elapsed is None or n is None or elapsed <= 0:
            if rate is None:
                return  # nothing in it can be used; the check of rates says so
            elapsed = n = math.nan
        end = number(data.get("time"))
        self.units = self.units or str(data.get("units", ""))
        t0_ns, host_ns = _count(data.get("t0_ns"), -1), number(data.get("host_ns"))
        # The device works behind the host, so that its times say nothing about where on the host's clock a step lies.
        half_ns = host_ns / 2 if host_ns is not None else elapsed * 5e8
        is_placed = t0_ns >= 0 and 0 <= half_ns < 2**62 and t0_ns < 2**62
        self.t0_ns.append(t0_ns)
        self.middle_ns.append(t0_ns + int(half_ns) if is_placed else -1)
        self.elapsed.append(elapsed)
        self.n.append(n)
        self.rate.append(n / elapsed if rate is None else rate)
        self.end.append(math.nan if end is None else end)
        self.steps.append(_count(data.get("steps"), 1))
        self.warmup.append(1 if data.get("warmup") else 0)
        self.epoch_end.append(1 if data.get("epoch_end") else 0)

    def series(self, task: str, rank: int) -> Series:
        return Series(
            task=task,
            rank=rank,
            units=self.units,
            t0_ns=self.t0_ns,
            middle_ns=self.middle_ns,
            elapsed=self.elapsed,
            n=self.n,
            rate=self.rate,
            end=self.end,
            steps=self.steps,
            warmup=self.warmup,
            epoch_end=self.epoch_end,
        )


def _count(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else otherwise


def _union(one: Window, other: Window) -> Window:
    """A window that holds both: each rank of a job tells its own, and warm-up is marked on the observations anyway."""
    first, last = min(one, other, key=lambda w: w.start_ns), max(one, other, key=lambda w: w.stop_ns)
    return replace(last, start_ns=first.start_ns, start=first.start)


class _Fold:
    """What has been seen so far."""

    def __init__(self) -> None:
        self.columns: dict[tuple[str, int], _Columns] = {}
        self.windows: dict[str, Window] = {}
        self.metrics: dict[tuple[Any, ...], Metric] = {}
        self.device_memory: dict[str, float] = {}
        self.readings = Readings()
        self.losses = Losses()
        self.end: End | None = None
        self.errors: list[Error] = []
        self.verdicts: list[Verdict] = []
        self.messages: dict[str, None] = {}  # a set that keeps its order
        self.config: Mapping[str, Any] = {}
        self.meta: dict[str, Any] = {}
        self.start: Mapping[str, Any] = {}

    def see(self, event: Event) -> None:
        match event:
            case Data(data=data):
                self._data(data)
            case End():
                self.end = event
            case Error():
                self.errors.append(event)
            case Other(event="overseer_error", data=dict(data)):  # an instrument that failed under voir
                kind, text = str(data.get("type", "error")), str(data.get("message", ""))
                self.errors.append(Error(step=event.step, t=event.t, type=kind, message=text))
            case Verdict():
                self.verdicts.append(event)
            case Message(text=text):
                self.messages[text] = None
            case Config(data=data):
                self.config = data
            case Meta(data=data):
                self.meta.update(data)
            case Start(data=data):
                self.start = data
            case _:
                pass

    def _data(self, data: Mapping[str, Any]) -> None:
        if "rate" in data:
            rank = _count(data.get("rank"), 0)
            key = (str(data.get("task", "")), rank)
            columns = self.columns.get(key)
            if columns is None:
                columns = self.columns[key] = _Columns()
            columns.add(data)
        if "loss" in data:
            self._loss(number(data["loss"]))
        if "metric" in data:
            self._metric(data)
        if isinstance(data.get("gpudata"), Mapping):
            self._devices(data["gpudata"])
            self.readings.take(data)
        if isinstance(data.get("window"), Mapping):
            self._window(str(data.get("task", "")), data["window"])
            self.readings.take(data)

    def _loss(self, loss: float | None) -> None:
        seen = self.losses
        self.losses = Losses(
            first=loss if seen.first is None else seen.first,
            last=seen.last if loss is None else loss,
            count=seen.count + 1,
            nonfinite=seen.nonfinite + (loss is None),
        )

    def _metric(self, data: Mapping[str, Any]) -> None:
        value = number(data.get("value"))
        if value is None:
            return
        direction, params, rank = data.get("direction"), data.get("params"), data.get("rank")
        metric = Metric(
            name=str(data["metric"]),
            value=value,
            units=str(data.get("units", "")),
            direction=direction if direction in ("higher", "lower") else "none",
            is_main=data.get("main") is True,
            case=str(data.get("case", "")),
            part=str(data.get("part", "")),
            params=params if isinstance(params, Mapping) else {},
            rank=rank if isinstance(rank, int) else None,
        )
        # Reported again, a metric replaces what was said before: a peak grows, an accuracy is refined.
        self.metrics[metric.name, metric.case, metric.part, repr(metric.params), metric.rank] = metric

    def _devices(self, devices: Mapping[str, Any]) -> None:
        for name, sample in devices.items():
            memory = sample.get("memory") if isinstance(sample, Mapping) else None
            used = number(memory[0]) if isinstance(memory, list) and memory else None
            if used is not None:
                self.device_memory[name] = max(used, self.device_memory.get(name, 0.0))

    def _window(self, task: str, data: Mapping[str, Any]) -> None:
        start, stop = data.get("start_ns"), data.get("stop_ns")
        if isinstance(start, int) and isinstance(stop, int) and start < stop:
            told = Window(
                start_ns=start,
                stop_ns=stop,
                start=number(data.get("start")),
                stop=number(data.get("stop")),
                why=str(data.get("why", "")),
            )
            self.windows[task] = _union(self.windows[task], told) if task in self.windows else told

    def _energy(self) -> Metric | None:
        """Joules of all the step's devices within the window, by their counters, else by their power; board sensors, no wall."""
        found = []
        for device in self.readings.devices.values():
            energy = energy_of(device, self.readings.window)
            joules = energy.integral_j if energy.counter_j is None else energy.counter_j
            if joules is None:
                return None
            found.append(joules)
        return Metric(name="energy", value=math.fsum(found), units="J", direction="lower") if found else None

    def result(self, step: str) -> Measurement:
        series = tuple(columns.series(task, rank) for (task, rank), columns in self.columns.items() if columns.rate)
        task = main_task(one.task for one in series)
        window = self.windows.get(task) or self.windows.get("")
        metrics = [*self.metrics.values()]
        if self.device_memory:
            peak = max(self.device_memory.values())
            metrics.append(Metric(name="device_memory_peak", value=peak, units="MiB", direction="lower"))
        energy = self._energy()
        if energy is not None and all(metric.name != "energy" for metric in metrics):
            metrics.append(energy)
        ranks = [one for one in series if one.task == task]
        return Measurement(
            step=step,
            task=task,
            throughput=rate_of(ranks, window) if ranks else _main_metric(metrics),
            series=series,
            window=window,
            losses=self.losses,
            metrics=tuple(metrics),
            end=self.end,
            errors=tuple(self.errors),
            verdicts=tuple(self.verdicts),
            messages=tuple(self.messages),
            config=self.config,
            meta=self.meta,
            start=self.start,
        )
