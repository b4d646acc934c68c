"""A step's events -> its measurements: a rate, its spread within the process, memory, losses, other metrics.

The throughput is the ratio of totals over the window after warm-up: all items over all seconds, not the mean of rates.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import filterfalse
from typing import Annotated, Any, Protocol

from milabench.analysis.conservation import broken_laws
from milabench.analysis.json_codec import OPTIONAL, JsonKey
from milabench.analysis.log_child import LogChild, log_fold
from milabench.analysis.log_metrics import LogFold, LogSeries, metrics_of
from milabench.analysis.sample_statistics import geometric_mean, variation
from milabench.analysis.series import CompactSeries, Series, SeriesBuilder
from milabench.analysis.serving_model import LaunchCurve
from milabench.analysis.steady_state import agree
from milabench.analysis.throughput import Direction, Pause, Throughput, launch_throughput, merged
from milabench.analysis.windows import TimeSpan, Window
from milabench.events import model
from milabench.events.doubts import Doubt
from milabench.events.model import Data, End, Error, Line, ObservationBatch, StepEvent, Verdict, reported_error
from milabench.events.readings import Readings, Span, device_joules
from milabench.events.values import SMALLEST_NUMBER, as_mapping, finite_number, one_line, whole
from milabench.seams import handler, missing

_MIB = 2**20
_BYTES = {"B": 1.0, "bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}

# Which memory figure is "the" peak, best first: what the program's allocator held; what the device was seen to hold,
# other programs' memory included; what the processes held on the host.
_MEMORY = ("memory_reserved_peak", "memory_allocated_peak", "device_memory_peak", "host_memory_peak")

_OF_A_SWEEP = frozenset({"request", "point", "serving"})
"""The keys that the client of a sweep records."""
NEVER_NS = 1 << 62
COUNTED = "counted"
"""The part of an energy that is of the seconds that the rate counts, and not of the whole window."""

_LONGEST_DOUBT = 40  # characters of a doubt that a program gives: it is a word, not a text

# milabench 1.3 marked no warm-up: discard as methodology.md, 1.1 has it, but never more than half of what there is.
_COMPAT_WARMUP_RECORDS = 10
_COMPAT_WARMUP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A scalar that a process reported, or that was computed from its records. `rank` is None for a lone process.

    `doubts` are the process's own.
    """

    name: Annotated[str, JsonKey("metric")]
    value: float
    units: str = ""
    direction: Direction = "none"
    case: Annotated[str, OPTIONAL] = ""
    part: Annotated[str, OPTIONAL] = ""
    params: Annotated[Mapping[str, Any], OPTIONAL] = field(default_factory=dict)
    is_main: Annotated[bool, JsonKey("main", is_optional=True)] = False
    doubts: Annotated[tuple[str, ...], JsonKey("reasons", is_optional=True)] = ()
    rank: Annotated[int | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptStep:
    """The result of a client's step that swept a server: its curve, the number of the repeat, the points' numbers as metrics.

    `unusable` counts the records of requests and points that could not be used.
    """

    curve: LaunchCurve
    throughput: Throughput | None
    metrics: tuple[Metric, ...]
    unusable: int


class SweepRecords(Protocol):
    """The records so far of a sweep. `has_lost` where a point had more requests than recorded."""

    def take(self, data: Mapping[str, object]) -> None: ...

    def result(self, declared: Mapping[str, object], metrics: Iterable[Metric]) -> SweptStep | None: ...

    @property
    def has_lost(self) -> bool: ...


@dataclass(slots=True, kw_only=True)
class Losses:
    """The losses of a step: `count` reported, of which `nonfinite` were no number. `lowest` and `highest` are of the others."""

    first: float | None = None
    last: float | None = None
    lowest: float = math.inf
    highest: float = -math.inf
    count: int = 0
    nonfinite: int = 0

    def add(self, loss: float | None) -> None:
        """Take a loss, None for one that is no number."""
        self.count += 1
        if loss is None:
            self.nonfinite += 1
            return
        self.first = loss if self.first is None else self.first
        self.last = loss
        self.lowest, self.highest = min(self.lowest, loss), max(self.highest, loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedSteps:
    """A result of a rank's first steps, the first time and again after the window: hexadecimal floats, with all of their bits.

    Empty where there was none.
    """

    first: tuple[str, ...] = ()
    again: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswers(RepeatedSteps):
    """The losses of a rank's first steps, and its gradient norms where requested.

    `device` is its model, `software` the releases that decide about bits. Within `tolerance` numbers count as equal.
    """

    rank: int | None = None
    device: str = ""
    software: str = ""
    gradients: RepeatedSteps = RepeatedSteps()
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measurements of a step. `throughput` is None when there is no number to give.

    `unusable` counts the observations of all its tasks, and the requests of a sweep, that were not numbers.
    `is_stopped`: it had all requested observations and was ended early. `serving` is the curve of a step that swept a
    server. `readings` are of its devices and host. `reports` counts the metrics that the program reported, each time.
    `train_rates` are all rates of the task train, where milabench 1.3 recorded nothing else of its steps.
    `inconsistencies` are sentences that make the number invalid. `energy_by_device` are joules by the id
    of a device, in the `counted_spans` (unix s), else in the window. Other steps may have used the device, too.
    `collectives` are what each rank recorded of its last collective operations, not checked. `reporting` are the ranks with
    an observation, usable or not.
    """

    step: str
    task: str = ""
    throughput: Throughput | None = None
    series: tuple[Series, ...] = ()
    window: Window | None = None
    unusable: int = 0
    losses: Losses = field(default_factory=Losses)
    metrics: tuple[Metric, ...] = ()
    answers: list[RankAnswers] = field(default_factory=list)
    end: End | None = None
    is_stopped: bool = False
    errors: list[Error] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    messages: tuple[str, ...] = ()
    logs: tuple[LogSeries, ...] = ()
    reports: int = 0
    serving: LaunchCurve | None = None
    readings: Readings = field(default_factory=Readings)
    train_rates: Sequence[float] = ()
    inconsistencies: tuple[str, ...] = ()
    energy_by_device: Mapping[str, float] = field(default_factory=dict)
    counted_spans: tuple[Span, ...] = ()
    collectives: list[Mapping[str, Any]] = field(default_factory=list)
    reporting: frozenset[int] = frozenset()
    config: Mapping[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)

    def metric(self, name: str) -> float | None:
        """Return the largest value reported under this name, None when it was not."""
        return max((metric.value for metric in self.metrics if metric.name == name), default=None)

    @property
    def has_number(self) -> bool:
        """Whether there is a rate, or a point of a sweep, which has no rate where no point meets its SLO."""
        return self.throughput is not None or (self.serving is not None and self.serving.is_measured)

    @property
    def is_of_command(self) -> bool:
        """Whether its number is the time of its launch, or in its lines."""
        return self.config.get("timed") is True or bool(self.config.get("metrics"))

    def without_single_values(self) -> Measurement:
        """Return it without the single observations and readings: there may be millions.

        `train_rates` stay, for the figures of milabench 1.3, which are of all steps of a benchmark together.
        A server's and its client's readings stay, for the energy that the two share.
        """
        readings = self.readings if {"serve", "role"} & self.config.keys() else Readings()
        return replace(self, series=(), readings=readings)

    @property
    def first_step_s(self) -> float | None:
        """Seconds from the start of the process to the end of its first step, compilation and all."""
        return self.metric("first_step")

    @property
    def energy_j(self) -> float | None:
        """Joules of the devices, summed over the reports."""
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
    """Return all measurements of a step, in a single pass over its events."""
    fold = MeasurementFold()
    for event in events:
        fold.observe(event)
    return fold.result(step)


def _rank_answers(answers: Mapping[str, object], rank: object, asked: Mapping[str, object]) -> RankAnswers:
    """Return a rank's recorded answers, without values that are not texts."""

    def steps(of: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
        known = {name: values for name in ("first", "again") if isinstance(values := of.get(name), list)}
        return {name: tuple(each for each in values if isinstance(each, str)) for name, values in known.items()}

    return RankAnswers(
        rank=rank if isinstance(rank, int) else None,
        device=one_line(str(answers.get("device", ""))),
        software=one_line(str(answers.get("software", ""))),
        **steps(answers),
        gradients=RepeatedSteps(**steps(as_mapping(answers.get("gradients")))),
        tolerance=finite_number(asked.get("tolerance")) or 0.0,
    )


def main_task(tasks: Iterable[str]) -> str:
    """Return the task whose rate is the step's: train, else inference, else the first seen. Empty when there is none."""
    tasks = tuple(tasks)
    return next((task for task in ("train", "inference", *tasks) if task in tasks), "")


def about_the_loop(ranks: Sequence[Series], rate: Throughput) -> Iterable[Metric]:
    """Return further facts about the slowest rank's loop, as metrics.

    `warm_up` is the time from the begin of the first step to the begin of the first counted step, in s. `steps_rate` is the
    rate within steps, `between_epochs` the share of the window between epochs, where the two rates differ by more than 0.5 %.
    `pause` is the share of each declared pause in the window.
    """
    if rate.basis != "ratio-of-totals":
        return
    slowest = max(rate.totals, key=lambda total: total.seconds)
    series = next(series for series in ranks if series.rank == slowest.rank)
    first_ns, begin_ns = series.t0_ns[0], rate.begin_ns
    if 0 <= first_ns < begin_ns:
        yield Metric(name="warm_up", value=(begin_ns - first_ns) / 1e9, units="s", direction="lower")
    if rate.steps_rate is not None and not agree(rate.steps_rate, rate.value):
        yield Metric(name="steps_rate", value=rate.steps_rate, units=rate.units, direction="higher")
        if rate.between_steps:
            yield Metric(name="between_epochs", value=rate.between_steps, direction="lower")
    for name, share in rate.pauses.items():
        yield Metric(name="pause", value=share, part=name)


def _seconds(series: Series) -> float:
    """Return the seconds of all observations, including warm-up. 0 for milabench 1.3, which does not record them."""
    if isinstance(series, CompactSeries):
        return series.whole_ns / series.lasted_per_s
    return math.fsum(filterfalse(math.isnan, series.lasted))


def _compat_rate(ranks: Sequence[Series]) -> Throughput | None:
    """Return the rate where nothing but rates is recorded, by milabench 1.3 or by the program itself.

    Of each rank it is the harmonic mean after warm-up. The ranks are summed.
    """
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
        doubts=(Doubt.PROGRAM_CLOCK if any(series.has_program_clock for series in ranks) else Doubt.COMPAT,),
    )


def _train_rates(series: Iterable[Series]) -> Iterable[float]:
    for one in series:
        if one.task == "train" and not one.has_totals:
            yield from map(one.rate, range(len(one.lasted)))


def _compat_window(series: Series) -> list[float]:
    kept = [index for index, is_warmup in enumerate(series.warmup) if not is_warmup and series.rate(index) > 0]
    if len(kept) == len(series.warmup) and kept:
        begin = series.end(kept[0])
        early = sum(1 for index in kept if series.end(index) - begin < _COMPAT_WARMUP_S)  # nan compares false
        kept = kept[min(max(_COMPAT_WARMUP_RECORDS, early), len(kept) // 2) :]
    return [series.rate(index) for index in kept]


def _main_metric(metrics: Sequence[Metric]) -> Throughput | None:
    """Return the metric flagged as main.

    Of several (cases, ranks) the geometric mean of the metrics in the first metric's units.
    """
    main = [metric for metric in metrics if metric.is_main and metric.value >= SMALLEST_NUMBER]
    if not main:
        return None
    alike = [metric.value for metric in main if metric.units == main[0].units]
    return Throughput(
        value=geometric_mean(alike),
        units=main[0].units,
        direction=main[0].direction,
        basis="metric",
        observations=len(alike),
        doubts=tuple(dict.fromkeys(doubt for metric in main for doubt in metric.doubts)),
    )


def _doubts_of_program(data: Mapping[str, object]) -> tuple[str, ...]:
    """Return a process's own warnings about its number. `converged: false` is from programs older than `reasons`."""
    given = data.get("reasons")
    texts = [reason for reason in given if isinstance(reason, str)] if isinstance(given, list) else []
    doubts = [one_line(text)[:_LONGEST_DOUBT] for text in texts]
    if data.get("converged") is False:
        doubts.append(Doubt.UNCONVERGED)
    return tuple(dict.fromkeys(doubts))


def _wall_time(config: Mapping[str, object], end: End | None) -> Throughput | None:
    """Return the seconds of the repeat of a command that is timed. None for another program."""
    if config.get("timed") is not True or end is None:
        return None
    wall_s = finite_number(end.wall_s)
    if wall_s is None or wall_s < SMALLEST_NUMBER:
        return None
    return Throughput(value=wall_s, units="s", direction="lower", basis="metric", observations=1)


def _main_log_metric(logs: Sequence[LogSeries]) -> Throughput | None:
    """Return the first number of the log with a better direction, with the spread of its values."""
    for log in logs:
        if log.metric.direction != "none" and log.value is not None:
            return Throughput(
                value=log.value,
                units=log.metric.units,
                direction=log.metric.direction,
                basis="metric",
                observations=len(log.values),
                spread_within=log.spread,
            )
    return None


def energy_metric(joules: Iterable[float], *, is_counted: bool) -> Metric:
    """Return the energy of a step, of the seconds that its rate counts or of its whole window."""
    part = COUNTED if is_counted else ""
    return Metric(name="energy", value=math.fsum(joules), units="J", direction="lower", part=part)


class MeasurementFold:
    """The observations of a step so far. `recorded` is its measurement as far as records say it themselves: its lists grow."""

    def __init__(self) -> None:
        self.recorded = Measurement(step="")
        self.builders: dict[tuple[str, int], SeriesBuilder] = {}
        self.windows: dict[str, Window] = {}
        self.processes: dict[tuple[str, int], dict[int, int]] = {}
        self.metrics: dict[tuple[Any, ...], Metric] = {}
        self.reports = 0
        self.device_memory: dict[str, float] = {}
        self.pauses: list[Pause] = []
        self.messages: dict[str, None] = {}  # a set that keeps its order
        self.log: LogFold | LogChild | None = None
        self.sweep: SweepRecords | None = None
        self.cost_s = 0.0
        self.dropped = 0.0

    def observe(self, event: StepEvent) -> None:
        match event:
            case ObservationBatch():
                self._builder((event.task, event.rank)).add_all(event)
            case Data(data=data):
                self.recorded.readings.observe(event)
                self._data(data)
            case End():
                self.recorded = replace(self.recorded, end=event)
            # milabench 1.3 gives no reason, so that its record is one of another kind.
            case model.Stop() | model.Other(event="stop"):
                self.recorded = replace(self.recorded, is_stopped=True)
            case Verdict():
                self.recorded.verdicts.append(event)
            case model.Message(text=text):
                self.messages[text] = None
            case Line(text=text, pipe=pipe):
                if self.log is not None:
                    self.log.observe(text, pipe)
            case model.Config(data=data):
                self.recorded = replace(self.recorded, config=data)
                log_metrics = metrics_of(data)
                # The configuration is recorded before the first line of output: no line is missed.
                if log_metrics and self.log is None:
                    self.log = log_fold(log_metrics)
            case model.Meta(data=data):
                self.recorded.readings.observe(event)
                self.recorded.meta.update(data)
            case model.Start(data=data):
                self.recorded = replace(self.recorded, start=data)
            case _:
                error = reported_error(event)
                if error is not None:
                    self.recorded.errors.append(error)

    def _data(self, data: Mapping[str, Any]) -> None:
        if "rate" in data:
            key = (str(data.get("task", "")), whole(data.get("rank"), 0))
            self._builder(key).add(data)
        if "loss" in data:
            self.recorded.losses.add(finite_number(data["loss"]))
        if "metric" in data:
            self._metric(data)
        if not _OF_A_SWEEP.isdisjoint(data):
            self._take_sweep(data)
        if isinstance(data.get("overhead"), Mapping):
            cost = data["overhead"]  # of one process; ranks have one each
            self.cost_s = max(self.cost_s, finite_number(cost.get("host_s")) or 0.0)
            self.dropped += finite_number(cost.get("dropped")) or 0.0
        if isinstance(data.get("gpudata"), Mapping):
            self._devices(data["gpudata"])
        if isinstance(data.get("answers"), Mapping):
            asked = as_mapping(self.recorded.config.get("answers"))
            self.recorded.answers.append(_rank_answers(data["answers"], data.get("rank"), asked))
        if isinstance(data.get("collectives"), Mapping):
            self.recorded.collectives.append({**data["collectives"], "rank": data.get("rank")})
        if isinstance(data.get("pause"), Mapping):
            self._pause(data["pause"], whole(data.get("rank"), -1))
        if isinstance(data.get("window"), Mapping):
            self._window(str(data.get("task", "")), whole(data.get("rank"), 0), data["window"])

    def _take_sweep(self, data: Mapping[str, object]) -> None:
        if lacking := missing("curves: fold"):
            self.messages[f"its curve {lacking}"] = None
            return
        self.sweep = self.sweep or handler("curves: fold")()
        self.sweep.take(data)

    def _builder(self, key: tuple[str, int]) -> SeriesBuilder:
        if key not in self.builders:
            self.builders[key] = SeriesBuilder(*key)
        return self.builders[key]

    def _waiting(self, task: str) -> Iterable[Metric]:
        """Return the share of the time after warm-up in which the ranks of a task waited for data, where they report it."""
        builders = [builder for (name, _), builder in self.builders.items() if name == task]
        worked_s = math.fsum(builder.worked_s for builder in builders)
        if worked_s:
            waited_s = math.fsum(builder.waited_s for builder in builders)
            yield Metric(name="data_wait", value=waited_s / worked_s, direction="lower")

    def _metric(self, data: Mapping[str, object]) -> None:
        self.reports += 1
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
            doubts=_doubts_of_program(data),
        )
        # A metric that is reported again replaces the earlier value: a peak grows, an accuracy is refined.
        self.metrics[metric.name, metric.case, metric.part, repr(metric.params), metric.rank] = metric

    def _devices(self, devices: Mapping[str, object]) -> None:
        for name, sample in devices.items():
            memory = sample.get("memory") if isinstance(sample, Mapping) else None
            used = finite_number(memory[0]) if isinstance(memory, list) and memory else None
            if used is not None:
                self.device_memory[name] = max(used, self.device_memory.get(name, 0.0))

    def _window(self, task: str, rank: int, data: Mapping[str, object]) -> None:
        start, stop = whole(data.get("start_ns"), -1), whole(data.get("stop_ns"), -1)
        if (pid := whole(data.get("pid"), 0)) > 0:
            self.processes.setdefault((task, rank), {})[pid] = stop
        if 0 <= start < stop:
            window = Window(
                start_ns=start,
                stop_ns=stop,
                start=finite_number(data.get("start")),
                stop=finite_number(data.get("stop")),
                why=str(data.get("why", "")),
            )
            self.windows[task] = self.windows[task].union(window) if task in self.windows else window

    def _pause(self, data: Mapping[str, object], rank: int) -> None:
        start_ns, stop_ns = whole(data.get("start_ns"), -1), whole(data.get("stop_ns"), -1)
        if 0 <= start_ns < stop_ns:
            name = one_line(str(data.get("name", "")))[:_LONGEST_DOUBT]
            self.pauses.append(Pause(name, start_ns, stop_ns, rank if rank >= 0 else None))

    def _doubts(self, unusable: int) -> Iterable[str]:
        """Yield warnings: observations that are no numbers, lost records."""
        if unusable:
            yield Doubt.NONFINITE
        if self.dropped or (self.sweep is not None and self.sweep.has_lost):
            yield Doubt.DROPPED

    def _observing(self, series: Sequence[Series]) -> float:
        """Return the share of the loops' time that recording took.

        The ranks of a job run at once, the tasks of a rank in turn: the costliest process against the longest rank.
        """
        by_rank: dict[int, list[float]] = {}
        for ranked in series:
            by_rank.setdefault(ranked.rank, []).append(_seconds(ranked))
        observed_s = max(map(math.fsum, by_rank.values()), default=0.0)
        return min(0.9, self.cost_s / observed_s) if observed_s > 0 else 0.0

    def _counted_spans(self, throughput: Throughput | None, window: Window | None) -> list[Span]:
        """Return the seconds that a rate counts, in unix time. Empty where they have no place."""
        if throughput is None or window is None or window.start is None or not throughput.totals:
            return []
        slowest = max(throughput.totals, key=lambda total: total.seconds)
        own = merged(pause for pause in self.pauses if pause.rank in (None, slowest.rank))
        now_ns, left_ns, spans = max(throughput.begin_ns, window.start_ns), round(slowest.seconds * 1e9), []
        for pause in (*own, TimeSpan(NEVER_NS, NEVER_NS)):
            lasted_ns = min(left_ns, pause.start_ns - now_ns)
            if lasted_ns > 0:
                begin = window.start + (now_ns - window.start_ns) / 1e9
                spans.append((begin, begin + lasted_ns / 1e9))
                left_ns -= lasted_ns
            now_ns = max(now_ns, pause.stop_ns)
        return spans

    def _energy(self, counted: Sequence[Span]) -> tuple[dict[str, float], Metric | None]:
        """Return the joules of each device in the counted seconds, and their sum. Nothing where the program measured its own."""
        if any(metric.name == "energy" for metric in self.metrics.values()):
            return {}, None
        joules = device_joules(self.recorded.readings, counted or [self.recorded.readings.window])
        return joules, energy_metric(joules.values(), is_counted=bool(counted)) if joules else None

    def _series(self) -> tuple[Series, ...]:
        """Return the observations of each task and rank of which anything can be used."""
        return tuple(series for builder in self.builders.values() if (series := builder.series) is not None)

    def _throughput(self, ranks: Sequence[Series], window: Window | None) -> Throughput | None:
        if not all(each.has_totals for each in ranks):
            return _compat_rate(ranks)
        return launch_throughput(ranks, window, self.pauses, as_mapping(self.recorded.config.get("measure")))

    def _derived_metrics(self, task: str, energy: Metric | None, logs: Iterable[LogSeries]) -> Iterable[Metric]:
        """Return the metrics computed from samples, observations and the log, except the rate."""
        if self.device_memory:
            peak = max(self.device_memory.values())
            yield Metric(name="device_memory_peak", value=peak, units="MiB", direction="lower")
        if energy is not None:
            yield energy
        yield from self._waiting(task)
        for log in logs:
            if (value := log.value) is not None:
                of = log.metric
                yield Metric(name=of.name, value=value, units=of.units, direction=of.direction)

    def result(self, step: str) -> Measurement:
        """Return the measurements."""
        series = self._series()
        task = main_task(item.task for item in series)
        ranks = [item for item in series if item.task == task]
        window = self.windows.get(task) or self.windows.get("")  # which was declared without a task
        logs, config = self.log.series() if self.log is not None else (), self.recorded.config
        ends_ns = {rank: tuple(ends.values()) for (name, rank), ends in self.processes.items() if name == task}
        throughput = self._throughput(ranks, window) if ranks else None
        counted = tuple(self._counted_spans(throughput, window))
        joules, energy = self._energy(counted)
        metrics = [*self.metrics.values(), *self._derived_metrics(task, energy, logs)]
        if ranks:
            metrics += about_the_loop(ranks, throughput) if throughput is not None else ()
        else:
            throughput = _main_metric(metrics) or _main_log_metric(logs) or _wall_time(config, self.recorded.end)
        unusable = sum(builder.unusable for builder in self.builders.values())
        usable = sum(len(one.lasted) for one in series)
        declared = as_mapping(config.get("serve"))
        swept = None if self.sweep is None else self.sweep.result(declared, self.metrics.values())
        if swept is not None:
            metrics += swept.metrics
            throughput = swept.throughput
            unusable += swept.unusable
            usable += sum(point.requests for point in swept.curve.points)
        if unusable:
            share = unusable / (unusable + usable)
            metrics.append(Metric(name="nonfinite", value=share, direction="lower"))
        if throughput is not None:
            throughput = replace(
                throughput,
                doubts=(*throughput.doubts, *self._doubts(unusable)),
                effects={**throughput.effects, "observing": self._observing(series)},
            )
        return replace(
            self.recorded,
            step=step,
            task=task,
            throughput=throughput,
            series=series,
            window=window,
            unusable=unusable,
            metrics=tuple(metrics),
            messages=tuple(self.messages),
            logs=logs,
            reporting=frozenset(rank for _, rank in self.builders),
            serving=None if swept is None else swept.curve,
            reports=self.reports,
            train_rates=array("d", _train_rates(series)),
            inconsistencies=tuple(broken_laws(ranks, window, self.pauses, ends_ns)),
            energy_by_device=joules,
            counted_spans=counted,
        )
