"""One step's events -> what was measured in it: a rate, its spread within the process, memory, losses, other metrics.

The throughput is the ratio of totals over the window after warm-up: all items over all seconds, not the mean of rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import filterfalse
from typing import Any, Literal

from milabench.analysis.json_codec import JsonKey
from milabench.analysis.log_metrics import LogFold, LogSeries, metrics_of
from milabench.analysis.sample_statistics import geometric_mean, lag1, variation, variation_and_lag1
from milabench.analysis.series import Growing, Series
from milabench.analysis.steady_state import Steadiness, agree, steadiness
from milabench.analysis.windows import Part, Window, latency, later_half, part_of
from milabench.events import model
from milabench.events.model import Data, End, Error, Line, ObservationBatch, StepEvent, Verdict, reported_error
from milabench.events.readings import Readings, energy_of
from milabench.events.reasons import Reason
from milabench.events.values import SMALLEST, finite_number, one_line, whole

Direction = Literal["higher", "lower", "none"]

# How a number was got. `compat`: milabench 1.3 recorded rates without their items and seconds; their harmonic mean is
# the ratio of totals when all batches are of one size, and no better estimate is possible. `metric`: no observation,
# but a metric that the program flagged as its main one.
Basis = Literal["ratio-of-totals", "compat", "metric", "warm-up"]

_MIB = 2**20
_BYTES = {"B": 1.0, "bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}

# Which memory figure is "the" peak, best first: what the program's allocator held; what the device was seen to hold,
# other programs' memory included; what the processes held on the host.
_MEMORY = ("memory_reserved_peak", "memory_allocated_peak", "device_memory_peak", "host_memory_peak")

# docs/explanation/methodology.md, 1.1: what the instruments may cost of the loop that they observe.
MOST_OVERHEAD = 0.005

_REASON = 40  # characters of a reason that a program gives: it is a word, not a text

# milabench 1.3 marked no warm-up: discard as methodology.md, 1.1 has it, but never more than half of what there is.
_COMPAT_WARMUP_RECORDS = 10
_COMPAT_WARMUP_S = 5.0


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
    the slowest rank's window: what it found to be left over of the warm-up is not in the number. `latency` is seconds a step
    on the slowest rank: `min`, `max`, and the quantiles `p50`, `p90`, `p95`, `p99` (R7) as far as so many steps bound them.
    `left_out` are the items of the window that were warm-up still: in no total, but in the energy of the window.
    `doubts` are reasons to suspect it.
    """

    value: float
    units: str = ""
    direction: Direction = field(default="higher", metadata={"json": JsonKey(fallback="none")})
    basis: Basis = field(default="ratio-of-totals", metadata={"json": JsonKey(fallback="ratio-of-totals")})
    observations: int = 0
    totals: tuple[Totals, ...] = ()
    spread_within: float | None = None
    lag1: float | None = None
    steady: Steadiness | None = field(default=None, metadata={"json": JsonKey(is_read=False)})
    latency: Mapping[str, float] = field(default_factory=dict)
    left_out: float = 0.0
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A scalar that a process reported, or that was computed from its records; `rank` is None for a lone process.

    `reasons` are why the process itself doubts it.
    """

    name: str
    value: float
    units: str = ""
    direction: Direction = "none"
    is_main: bool = False
    case: str = ""
    part: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    reasons: tuple[str, ...] = ()


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
    logs: tuple[LogSeries, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)

    def metric(self, name: str) -> float | None:
        """Return the largest value reported under this name, None when it was not."""
        return max((metric.value for metric in self.metrics if metric.name == name), default=None)

    @property
    def first_step_s(self) -> float | None:
        """Seconds from the start of the process to the end of its first step, compilation and all."""
        return self.metric("first_step")

    @property
    def energy_j(self) -> float | None:
        """Joules of the devices, summed over what was reported."""
        joules = [metric.value for metric in self.metrics if metric.name == "energy"]
        return math.fsum(joules) if joules else None

    @property
    def memory_peak_mib(self) -> float | None:
        """The highest peak of the best kind of memory figure that there is (`_MEMORY`), in MiB."""
        for name in _MEMORY:
            peaks = [m.value * _BYTES[m.units] / _MIB for m in self.metrics if m.name == name and m.units in _BYTES]
            if peaks:
                return max(peaks)
        return None


def measure(step: str, events: Iterable[StepEvent]) -> Measurement:
    """Return all measurements of one step, in one pass over its events."""
    fold = MeasurementFold()
    for event in events:
        fold.observe(event)
    return fold.result(step)


def main_task(tasks: Iterable[str]) -> str:
    """Return the task whose rate is the step's: train, else inference, else the first seen; empty when there is none."""
    tasks = tuple(tasks)
    return next((task for task in ("train", "inference", *tasks) if task in tasks), "")


def step_throughput(ranks: Sequence[Series], window: Window | None) -> Throughput | None:
    """Return the throughput of a job from its ranks' observations; None when none of them lies in the window."""
    if not all(series.has_totals for series in ranks):
        return _compat_rate(ranks)
    in_window = [part for series in ranks if len(part := part_of(series, window))]
    if not in_window:
        # It never left its warm-up: shown, as a number that is not steady.
        halves = [part for series in ranks if len(part := later_half(series))]
        return combined_throughput(halves, units=ranks[0].units, basis="warm-up", is_steady=False) if halves else None
    steady, parts, left_out = _steadiness(in_window), in_window, 0.0
    if steady is not None and steady.settled_at and steady.is_steady:
        # All ranks lose the same steps: they wait for each other, so that none is steady before the slowest.
        parts = [part.after(steady.settled_at) for part in in_window]
        left_out = math.fsum([*(part.items() for part in in_window), *(-part.items() for part in parts)])
    throughput = combined_throughput(parts, units=ranks[0].units, is_steady=steady is None or steady.is_steady)
    return None if throughput is None else replace(throughput, steady=steady, left_out=left_out)


def _steadiness(parts: Sequence[Part]) -> Steadiness | None:
    """Return how steady the slowest rank was in its window: seconds an item, so that a smaller last batch is not a faster one."""
    durations = max(parts, key=Part.seconds).durations()
    return None if durations is None else steadiness(durations)


def _clocks_agree(part: Part) -> bool:
    """Return whether items over the sum of the steps' seconds is what items over the window's seconds on the host's clock is.

    A device still works on an epoch when the host has left it, so on its clock the gap between two may be part of a step.
    """
    items, seconds, busy_s, wall_s = part.items(), part.seconds(), part.wall_s(), part.wall_s(has_gaps=True)
    if busy_s is None or wall_s is None or busy_s <= 0:
        return True
    return busy_s <= seconds <= wall_s or any(
        agree(items / seconds, items / duration_s) for duration_s in (busy_s, wall_s)
    )


def about_the_loop(ranks: Sequence[Series], window: Window | None, rate: Throughput) -> Iterable[Metric]:
    """Return what a rate does not say of the slowest rank's loop: how long it warmed up, and how much lies between its epochs.

    `warm_up` is the time from the begin of the first step to that of the first one that counts, in s; `between_epochs` the share
    of the window in which nobody was in a step because an epoch had ended, where it is more than the 0.5 % within which
    items over the steps' seconds and items over the window's have to agree.
    """
    if rate.basis != "ratio-of-totals":
        return
    part = max((part_of(series, window) for series in ranks), key=Part.seconds)
    if rate.left_out and rate.steady is not None:
        part = part.after(rate.steady.settled_at)
    first_ns, begin_ns = part.series.t0_ns[0], part.begin_ns()
    if 0 <= first_ns < begin_ns:
        yield Metric(name="warm_up", value=(begin_ns - first_ns) / 1e9, units="s", direction="lower")
    busy_s, wall_s = part.wall_s(), part.wall_s(has_gaps=True)
    if busy_s is not None and wall_s is not None and wall_s > 0 and not agree(busy_s, wall_s):
        yield Metric(name="between_epochs", value=1 - busy_s / wall_s, direction="lower")


def combined_throughput(
    parts: Sequence[Part], units: str, basis: Basis = "ratio-of-totals", *, is_steady: bool
) -> Throughput | None:
    """Return the throughput of ranks that worked on one job: the items of all over the seconds of the slowest."""
    totals = [
        Totals(
            rank=part.series.rank,
            items=part.items(),
            seconds=part.seconds(),
            observations=len(part),
            steps=part.steps(),
        )
        for part in parts
    ]
    items = math.fsum(total.items for total in totals)
    if items <= 0:
        return None
    # Ranks of a job wait for each other; adding their rates up would count that time as if it were work.
    slowest = max(range(len(totals)), key=lambda index: totals[index].seconds)
    seconds = totals[slowest].seconds
    doubts: list[Reason] = []
    if not is_steady:
        doubts.append("no-steady-state")
    if not all(map(_clocks_agree, parts)):
        doubts.append("clocks-disagree")
    spread, correlation = variation_and_lag1(parts[slowest].rates(), totals[slowest].items / seconds)
    return Throughput(
        value=items / seconds,
        units=units,
        basis=basis,
        observations=sum(total.observations for total in totals),
        totals=tuple(totals),
        spread_within=spread,
        lag1=correlation,
        latency=latency(parts[slowest]),
        doubts=tuple(doubts),
    )


def _seconds(series: Series) -> float:
    """Return the seconds of all observations, warm-up included; none of those of milabench 1.3, which do not say."""
    return math.fsum(filterfalse(math.isnan, series.lasted)) / series.lasted_per_s


def _compat_rate(ranks: Sequence[Series]) -> Throughput | None:
    """Return the rate of milabench 1.3 records: of each rank the harmonic mean after warm-up, summed over ranks."""
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
    kept = [index for index, is_warmup in enumerate(series.warmup) if not is_warmup and series.rate(index) > 0]
    if len(kept) == len(series.warmup) and kept:
        begin = series.end(kept[0])
        early = sum(1 for index in kept if series.end(index) - begin < _COMPAT_WARMUP_S)  # nan compares false
        kept = kept[min(max(_COMPAT_WARMUP_RECORDS, early), len(kept) // 2) :]
    return [series.rate(index) for index in kept]


def _main_metric(metrics: Sequence[Metric]) -> Throughput | None:
    """Return the metric flagged as main; of several (cases, ranks) the geometric mean of those in the first one's units."""
    main = [metric for metric in metrics if metric.is_main and metric.value >= SMALLEST]
    if not main:
        return None
    alike = [metric.value for metric in main if metric.units == main[0].units]
    return Throughput(
        value=geometric_mean(alike),
        units=main[0].units,
        direction=main[0].direction,
        basis="metric",
        observations=len(alike),
        doubts=tuple(dict.fromkeys(reason for metric in main for reason in metric.reasons)),
    )


def _reasons(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why a process doubts its number; `converged: false` is from programs older than `reasons`."""
    given = data.get("reasons")
    reasons = (
        [one_line(reason)[:_REASON] for reason in given if isinstance(reason, str)] if isinstance(given, list) else []
    )
    return tuple(dict.fromkeys([*reasons, *(["unconverged"] if data.get("converged") is False else [])]))


def _main_log_metric(logs: Sequence[LogSeries]) -> Throughput | None:
    """Return the first number of the log for which one direction is better, with the spread of what it was made of."""
    for log in logs:
        if log.metric.direction != "none" and log.value is not None:
            return Throughput(
                value=log.value,
                units=log.metric.units,
                direction=log.metric.direction,
                basis="metric",
                observations=len(log.values),
                spread_within=log.spread,
                lag1=log.lag1,
            )
    return None


class MeasurementFold:
    """What has been observed so far of a step."""

    def __init__(self) -> None:
        self.growing: dict[tuple[str, int], Growing] = {}
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
        self.log: LogFold | None = None
        self.cost_s = 0.0
        self.dropped = 0.0

    def observe(self, event: StepEvent) -> None:
        match event:
            case ObservationBatch():
                self._growing((event.task, event.rank)).add_all(event)
            case Data(data=data):
                self._data(data)
            case End():
                self.end = event
            case Verdict():
                self.verdicts.append(event)
            case model.Message(text=text):
                self.messages[text] = None
            case Line(text=text, pipe=pipe):
                if self.log is not None:
                    self.log.observe(text, pipe)
            case model.Config(data=data):
                self.config = data
                log_metrics = metrics_of(data)
                # The configuration is recorded before the first line of output: no line is missed.
                if log_metrics and self.log is None:
                    self.log = LogFold(log_metrics)
            case model.Meta(data=data):
                self.meta.update(data)
            case model.Start(data=data):
                self.start = data
            case _:
                error = reported_error(event)
                if error is not None:
                    self.errors.append(error)

    def _data(self, data: Mapping[str, Any]) -> None:
        if "rate" in data:
            key = (str(data.get("task", "")), whole(data.get("rank"), 0))
            self._growing(key).add(data)
        if "loss" in data:
            self._loss(finite_number(data["loss"]))
        if "metric" in data:
            self._metric(data)
        if isinstance(data.get("overhead"), Mapping):
            cost = data["overhead"]  # of one process; ranks have one each
            self.cost_s = max(self.cost_s, finite_number(cost.get("host_s")) or 0.0)
            self.dropped += finite_number(cost.get("dropped")) or 0.0
        if isinstance(data.get("gpudata"), Mapping):
            self._devices(data["gpudata"])
            # Not `observe`: the readings are this fold's own, so that no record can come twice.
            self.readings.take(data)
        if isinstance(data.get("window"), Mapping):
            self._window(str(data.get("task", "")), data["window"])
            self.readings.take(data)

    def _growing(self, key: tuple[str, int]) -> Growing:
        if key not in self.growing:
            self.growing[key] = Growing(*key)
        return self.growing[key]

    def _waiting(self, task: str) -> Iterable[Metric]:
        """Return the share of the time after warm-up in which the ranks of a task waited for data, where they report it."""
        growing = [growing for (name, _), growing in self.growing.items() if name == task]
        worked_s = math.fsum(rank.worked_s for rank in growing)
        if worked_s:
            waited_s = math.fsum(rank.waited_s for rank in growing)
            yield Metric(name="data_wait", value=waited_s / worked_s, direction="lower")

    def _loss(self, loss: float | None) -> None:
        seen = self.losses
        self.losses = Losses(
            first=loss if seen.first is None else seen.first,
            last=seen.last if loss is None else loss,
            count=seen.count + 1,
            nonfinite=seen.nonfinite + (loss is None),
        )

    def _metric(self, data: Mapping[str, Any]) -> None:
        value = finite_number(data.get("value"))
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
            reasons=_reasons(data),
        )
        # A metric that is reported again replaces the earlier value: a peak grows, an accuracy is refined.
        self.metrics[metric.name, metric.case, metric.part, repr(metric.params), metric.rank] = metric

    def _devices(self, devices: Mapping[str, Any]) -> None:
        for name, sample in devices.items():
            memory = sample.get("memory") if isinstance(sample, Mapping) else None
            used = finite_number(memory[0]) if isinstance(memory, list) and memory else None
            if used is not None:
                self.device_memory[name] = max(used, self.device_memory.get(name, 0.0))

    def _window(self, task: str, data: Mapping[str, Any]) -> None:
        start, stop = whole(data.get("start_ns"), -1), whole(data.get("stop_ns"), -1)
        if 0 <= start < stop:
            window = Window(
                start_ns=start,
                stop_ns=stop,
                start=finite_number(data.get("start")),
                stop=finite_number(data.get("stop")),
                why=str(data.get("why", "")),
            )
            self.windows[task] = self.windows[task].union(window) if task in self.windows else window

    def _doubts(self, series: Sequence[Series]) -> Iterable[str]:
        """Return the instruments' own reasons for doubt: lost records, or too large a share of the loops that they observed."""
        if self.dropped:
            yield "dropped"
        by_rank: dict[int, list[float]] = {}
        for ranked in series:
            by_rank.setdefault(ranked.rank, []).append(_seconds(ranked))
        observed_s = max(map(math.fsum, by_rank.values()), default=0.0)
        # The ranks of a job run at once, the tasks of a rank in turn: the costliest process against the longest rank.
        if self.cost_s > MOST_OVERHEAD * observed_s > 0:
            yield "overhead"

    def _energy(self) -> Iterable[Metric]:
        """Return the joules of all the step's devices within the window, by their counters, else by their power.

        By the boards' sensors, not at the wall; nothing unless all devices have readings.
        """
        devices = [energy_of(device, self.readings.window) for device in self.readings.devices.values()]
        joules = [energy.integral_j if energy.counter_j is None else energy.counter_j for energy in devices]
        known = [value for value in joules if value is not None]
        if known and len(known) == len(joules):
            yield Metric(name="energy", value=math.fsum(known), units="J", direction="lower")

    def series(self) -> tuple[Series, ...]:
        """Return the observations of each task and rank of which anything can be used."""
        return tuple(series for growing in self.growing.values() if (series := growing.series) is not None)

    def window(self, task: str) -> Window | None:
        """Return the window of a task, or the one that was declared for no task."""
        return self.windows.get(task) or self.windows.get("")

    def _derived_metrics(self, task: str) -> Iterable[Metric]:
        """Return what is computed from samples and observations, besides the rate."""
        if self.device_memory:
            peak = max(self.device_memory.values())
            yield Metric(name="device_memory_peak", value=peak, units="MiB", direction="lower")
        if all(metric.name != "energy" for metric in self.metrics.values()):
            yield from self._energy()
        yield from self._waiting(task)

    def result(self, step: str) -> Measurement:
        """Return what was measured."""
        series = self.series()
        task = main_task(item.task for item in series)
        window, ranks = self.window(task), [item for item in series if item.task == task]
        logs = self.log.series() if self.log is not None else ()
        metrics = [*self.metrics.values(), *self._derived_metrics(task)]
        metrics += [
            Metric(name=log.metric.name, value=value, units=log.metric.units, direction=log.metric.direction)
            for log in logs
            if (value := log.value) is not None
        ]
        if ranks:
            throughput = step_throughput(ranks, window)
            metrics += about_the_loop(ranks, window, throughput) if throughput is not None else ()
        else:
            throughput = _main_metric(metrics) or _main_log_metric(logs)
        if throughput is not None:
            throughput = replace(throughput, doubts=(*throughput.doubts, *self._doubts(series)))
        return Measurement(
            step=step,
            task=task,
            throughput=throughput,
            series=series,
            window=window,
            losses=self.losses,
            metrics=tuple(metrics),
            end=self.end,
            errors=tuple(self.errors),
            verdicts=tuple(self.verdicts),
            messages=tuple(self.messages),
            logs=logs,
            config=self.config,
            meta=self.meta,
            start=self.start,
        )
