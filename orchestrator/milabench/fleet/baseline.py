"""Robust numbers of a fleet's nodes and devices, and outliers among them (docs/reference/criteria.md).

Expected is the median over places, the spread their median absolute deviation, both on logarithms: a few bad nodes among
those that made the baseline move neither. A place is an outlier when it is further from the median than noise would put it, and
than the floor, below which nobody cares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from milabench.analysis.energy_per_item import energies, item_of, joules_per_item
from milabench.analysis.intervals import t_quantile
from milabench.analysis.json_codec import OPTIONAL, JsonKey, to_json_value
from milabench.analysis.sample_statistics import MAD_TO_SD, geometric_mean, median, median_absolute_deviation
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.system_diff import arguments_in, own_arguments
from milabench.errors import RecordError
from milabench.events.stored_json import AboveZero, NotNegative, Number, from_json_value
from milabench.events.values import finite_number, mappings_in

SCHEMA = 1
KIND = "milabench-baseline"
LEVEL = 0.99  # of all good places, the share that is no outlier
FLOOR = 0.01  # relative; no place is an outlier for less
LEAST_PLACES = 5  # fewer give no meaningful spread
_MAD_EFFICIENCY = 0.37  # of the median absolute deviation as an estimate of a normal spread: its degrees of freedom
# Besides the rate and the energy: the metrics that say something about the place where they were measured.
_METRICS = ("first_step", "device_memory_peak")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUnit:
    """Where a number was measured: a machine, and the device, if it was on a device. `uuid` is empty where not known."""

    node: str
    device: str = ""
    uuid: str = ""

    def __str__(self) -> str:
        device = f"/{self.device}" if self.device else ""
        return f"{self.node}{device}" + (f" ({self.uuid})" if self.uuid else "")


@dataclass(frozen=True, slots=True)
class Sample:
    """The number of a place: of several processes there, their geometric mean."""

    run: str
    bench: str
    metric: str
    location: MeasuredUnit
    value: float
    units: str
    direction: str
    size: str = ""
    asked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected number of places like these: median, and deviation of logarithms from their median absolute deviation.

    `values` are the places' names with their numbers, so that anybody can recompute the others. `asked` is the work
    that the benchmark was asked to do, as `arguments_in` returns it.
    """

    bench: str = "None"
    metric: str = "None"
    size: Annotated[str, OPTIONAL] = ""
    asked: Annotated[str, OPTIONAL] = ""
    units: str = ""
    direction: Annotated[str, JsonKey(followed_by=("n",))] = "none"
    median: AboveZero
    spread: NotNegative
    values: Annotated[Mapping[str, Number], Meta(min_length=1), JsonKey("places")]

    @property
    def n(self) -> int:
        """How many places there are."""
        return len(self.values)

    def limit(self, level: float, floor: float) -> float:
        """Return how far, on logarithms, a good place's number may be from the median: `level` of them are nearer.

        The Student quantile for the freedom that a median absolute deviation has, widened because the median is one
        of few places too.
        """
        freedom = max(1.0, _MAD_EFFICIENCY * (self.n - 1))
        # The variance of the median of n normal values is pi/2n of theirs.
        reach = t_quantile((1 + level) / 2, freedom) * self.spread * math.sqrt(1 + math.pi / (2 * self.n))
        return max(reach, math.log1p(floor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The expected numbers of a fleet, and the runs they come from. `suspects` says in words which are suspect, and why."""

    runs: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    expected: tuple[Expected, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the output of `baseline`."""
        return {"schema": SCHEMA, "kind": KIND, **to_json_value(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A place that is an outlier of a baseline: by how much (relative, signed), the limit, and the rule in words."""

    location: MeasuredUnit
    run: str
    bench: str
    metric: str
    value: float | None = None
    units: str
    expected: float | None
    deviation: float | None = None
    within: float = 0.0
    side: Literal["worse", "better", "different", "failed", "wrong"]
    rule: str

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `outliers` as `outliers --json` has it."""
        location, encoded = self.location, to_json_value(self)
        del encoded["location"]
        return {"node": location.node, "device": location.device or None, "uuid": location.uuid or None, **encoded}


def _each_in_words(unjudged: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{name}: {why}" for name, why in unjudged]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The outliers, the number of checked values, unchecked ones with the reason, and suspect ones with theirs.

    `unjudged` are pairs: a benchmark, with its metric where there is one, and why it was not checked.
    """

    outliers: Annotated[
        tuple[Outlier, ...], JsonKey(write=lambda outliers: [outlier.to_json() for outlier in outliers])
    ]
    judged: Annotated[int, JsonKey(followed_by=("by_chance",))]
    level: float = LEVEL
    unjudged: Annotated[tuple[tuple[str, str], ...], JsonKey(write=_each_in_words)] = ()
    suspects: tuple[str, ...] = ()

    @property
    def by_chance(self) -> float:
        """How many numbers of a good fleet would be outliers at this level. Fewer where the floor decides."""
        return self.judged * (1 - self.level)

    def to_json(self) -> dict[str, Any]:
        """Return the output of `outliers --json`."""
        return {"schema": SCHEMA, **to_json_value(self)}


def samples(summary: Summary) -> tuple[Sample, ...]:
    """Return a number for each benchmark, metric and place of a run. Invalid and failed ones are left out."""
    units: dict[tuple[str, str], str] = {}
    groups: dict[tuple[str, str, MeasuredUnit], list[Sample]] = {}
    for bench in summary.benchmarks:
        for sample in _samples(summary, bench) if bench.validity != "invalid" else ():
            # What is in other units than the first number of its kind is left out: it cannot be compared.
            is_comparable = sample.units == units.setdefault((sample.bench, sample.metric), sample.units)
            if is_comparable and sample.value > 0:
                groups.setdefault((sample.bench, sample.metric, sample.location), []).append(sample)
    return tuple(replace(each[0], value=geometric_mean([one.value for one in each])) for each in groups.values())


def _samples(summary: Summary, bench: BenchSummary) -> Iterable[Sample]:
    """Yield the numbers of a benchmark's processes: the rate, the energy for an item, and other metrics of a place."""
    work = bench.size, arguments_in(summary.manifest, bench.bench)
    location_of: dict[str, MeasuredUnit] = {}
    step_energies = energies(bench)

    def sample(metric: str, location: MeasuredUnit, value: float, units: str, direction: str) -> Sample:
        return Sample(summary.run, bench.bench, metric, location, value, units, direction, *work)

    for process in bench.processes:
        node, _, tag = process.slot.partition("/")
        location, rate = _location(summary, node, tag), process.throughput
        location_of |= dict.fromkeys(process.steps, location)
        yield sample("rate", location, rate.value, rate.units, rate.direction)
        joules = joules_per_item(process, step_energies)
        if joules is not None:
            yield sample("energy", location, joules, f"J/{item_of(rate.units)}", "lower")
    for metric in bench.metrics:
        name, value, step = str(metric.get("metric")), finite_number(metric.get("value")), str(metric.get("step"))
        if name in _METRICS and value is not None and step in location_of:
            units, direction = str(metric.get("units", "")), str(metric.get("direction", "none"))
            yield sample(name, location_of[step], value, units, direction)


def baseline(summaries: Sequence[Summary]) -> Baseline:
    """Return the baseline of the places of these runs, each size and each set of arguments by itself.

    A place in several runs counts once, with the mean of its numbers.
    """
    groups: dict[tuple[str, str, str, str, str], tuple[str, dict[str, list[float]]]] = {}
    for summary in summaries:
        for sample in samples(summary):
            key = (sample.bench, sample.metric, sample.size, sample.asked, sample.units)
            _, by_location = groups.setdefault(key, (sample.direction, {}))
            by_location.setdefault(str(sample.location), []).append(sample.value)
    expected = []
    for (bench, metric, size, asked, units), (direction, by_location) in sorted(groups.items()):
        values = {name: geometric_mean(members) for name, members in sorted(by_location.items())}
        middle, spread = robust([math.log(value) for value in values.values()])
        expected.append(
            Expected(
                bench=bench,
                metric=metric,
                size=size,
                asked=asked,
                units=units,
                direction=direction,
                median=math.exp(middle),
                spread=spread,
                values=values,
            )
        )
    suspects = tuple(text for summary in summaries for text in _suspects(summary))
    return Baseline(runs=tuple(summary.run for summary in summaries), expected=tuple(expected), suspects=suspects)


def _suspects(summary: Summary) -> Iterable[str]:
    """Return which numbers of a run are used although they are suspect."""
    for bench in summary.benchmarks:
        if bench.validity == "suspect":
            yield f"{bench.bench} of {summary.run}: {', '.join(bench.doubt_words.values())}"


def robust(values: Sequence[float]) -> tuple[float, float]:
    """Return (median, standard deviation as the median absolute deviation tells it for a normal distribution)."""
    return median(values), MAD_TO_SD * median_absolute_deviation(values)


def outliers(
    summaries: Iterable[Summary], reference: Baseline, *, level: float = LEVEL, floor: float = FLOOR
) -> Findings:
    """Return nodes and devices of runs that are outliers of a baseline, the worst first, and unchecked places."""
    expected_of: dict[tuple[str, str, str], list[Expected]] = {}
    for one in reference.expected:
        expected_of.setdefault((one.bench, one.metric, one.size), []).append(one)
    fallen: list[Outlier] = []
    unjudged: dict[tuple[str, str], None] = {}
    suspects: list[str] = []
    judged = 0
    for summary in summaries:
        for sample in samples(summary):
            of_size = expected_of.get((sample.bench, sample.metric, sample.size), [])
            expected = next((one for one in of_size if one.asked == sample.asked), None)
            why = _not_comparable(sample, expected, of_size)
            if why or expected is None:
                unjudged[f"{sample.bench} {sample.metric}", why] = None
                continue
            judged += 1
            away = math.log(sample.value / expected.median)
            limit = expected.limit(level, floor)
            if abs(away) > limit:
                fallen.append(_outlier(sample, expected, away, limit, floor, level))
        suspects += _suspects(summary)
        for bench in summary.benchmarks:
            fallen += _failed(summary, bench, next(iter(expected_of.get((bench.bench, "rate", bench.size), [])), None))
        absent = {bench for bench, _, _ in expected_of} - {bench.bench for bench in summary.benchmarks}
        unjudged |= dict.fromkeys((bench, f"{summary.run} did not run it") for bench in sorted(absent))
    fallen.sort(key=lambda outlier: (outlier.side != "failed", -abs(outlier.deviation or 0.0)))
    return Findings(
        outliers=tuple(fallen), judged=judged, unjudged=tuple(unjudged), level=level, suspects=tuple(suspects)
    )


def baseline_from_json(value: Mapping[str, object], where: str) -> Baseline:
    """Return the baseline in a file's JSON. Raises RecordError, naming the file, when it is none."""
    if value.get("kind") != KIND:
        raise RecordError(f"{where}: is not a baseline. Make it with `milabench baseline RUN... -o {where}`")
    if value.get("schema") != SCHEMA:
        raise RecordError(
            f"{where}: has schema {value.get('schema')!r}, and this version reads {SCHEMA}. Create it again"
        )
    expected = [{**entry, "values": entry.get("places")} for entry in mappings_in(value.get("expected"))]
    try:
        return from_json_value(Baseline, {**value, "expected": expected})
    except ValueError as error:
        raise RecordError(f"{where}: is no baseline: {error}. Create it again") from None


def _not_comparable(sample: Sample, expected: Expected | None, of_size: Sequence[Expected]) -> str:
    if expected is None and of_size:
        asked, other = sample.asked, of_size[0].asked
        if not (asked and other):
            return (
                f"may do other work than the baseline: its arguments are not recorded in {'it' if asked else 'the run'}"
            )
        return (
            f"does other work than the baseline: {own_arguments(asked, [other])}, there {own_arguments(other, [asked])}"
        )
    if expected is None:
        return f"is not in the baseline at the size {sample.size}" if sample.size else "is not in the baseline"
    if expected.units != sample.units:
        return f"is in {sample.units or 'no units'}, the baseline in {expected.units or 'no units'}"
    if expected.n < LEAST_PLACES:
        return f"the baseline has {expected.n} nodes or devices and needs {LEAST_PLACES}"
    return ""


def _outlier(sample: Sample, expected: Expected, away: float, limit: float, floor: float, level: float) -> Outlier:
    is_higher = away > 0
    side: Literal["worse", "better", "different"] = "different"
    if sample.direction in ("higher", "lower"):
        side = "better" if is_higher == (sample.direction == "higher") else "worse"
    within = math.expm1(limit)
    is_floor = limit <= math.log1p(floor)
    why = "the smallest that counts" if is_floor else f"{level:.1%} of places are nearer, by their spread"
    return Outlier(
        location=sample.location,
        run=sample.run,
        bench=sample.bench,
        metric=sample.metric,
        value=sample.value,
        units=sample.units,
        expected=expected.median,
        deviation=math.expm1(away),
        within=within,
        side=side,
        rule=f"further than {within:.1%} from the median of {expected.n} places: {why}",
    )


def _failed(summary: Summary, bench: BenchSummary, expected: Expected | None) -> Iterable[Outlier]:
    """Return the steps that did not pass where the places of the baseline did, and every step with a wrong result."""
    for failure in bench.failures:
        is_wrong = failure.why == "wrong"
        if expected is None and not is_wrong:
            continue
        detail = f": {failure.detail}" if failure.detail else ""
        yield Outlier(
            location=_step_location(summary, failure.node, failure.step.removeprefix(bench.bench).split(".")),
            run=summary.run,
            bench=bench.bench,
            metric="rate",
            units=bench.units if expected is None else expected.units,
            expected=None if expected is None else expected.median,
            side="wrong" if is_wrong else "failed",
            rule=f"{failure.name} did not pass: {failure.why}{detail}",
        )


def _step_location(summary: Summary, node: str, suffixes: Sequence[str]) -> MeasuredUnit:
    """Return where a step ran: its node, and its device by the suffixes of its id."""
    return _location(summary, node, next((part for part in suffixes if part[:1] == "D" and part[1:].isdigit()), ""))


def _location(summary: Summary, name: str, tag: str) -> MeasuredUnit:
    """Return the machine called `name` in a run, by its host name, with its device. A lone machine needs no name.

    Nodes that share a host name, such as cloned machines, go by their own names.
    """
    nodes = mappings_in(summary.system.get("nodes"))
    node = next((node for node in nodes if node.get("name") == name), nodes[0] if len(nodes) == 1 else {})
    hostname = node.get("hostname")
    is_shared = sum(other.get("hostname") == hostname for other in nodes) > 1
    host = str((not is_shared and hostname) or node.get("name") or name or summary.run)
    for device in mappings_in(node.get("devices")):
        if tag == f"D{device.get('index')}":
            return MeasuredUnit(node=host, device=tag, uuid=str(device.get("uuid") or ""))
    return MeasuredUnit(node=host, device=tag)
