"""What a fleet's nodes and devices do, robustly, and which of them fall out of it (docs/acceptance.md).

Expected is the median over places, the spread their median absolute deviation, both on logarithms: a few bad nodes among
those that made the baseline move neither. A place falls out when it is further from the median than noise would put it, and
than anybody would care about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from milabench.analysis.efficiency import energies, item_of, joules_per_item
from milabench.analysis.intervals import t_quantile
from milabench.analysis.spread import MAD_TO_SD, geometric_mean, median, median_absolute_deviation
from milabench.analysis.summary_model import BenchSummary, ReplicateResult, Summary
from milabench.errors import RecordError
from milabench.events.json_access import as_mapping
from milabench.events.numbers import finite_number

SCHEMA = 1
KIND = "milabench-baseline"
LEVEL = 0.99  # of all good places, the share that does not fall out
FLOOR = 0.01  # relative; no place falls out for less
LEAST_PLACES = 5  # below it a spread says nothing
_MAD_EFFICIENCY = 0.37  # of the median absolute deviation as an estimate of a normal spread: its degrees of freedom
# Besides the rate and the energy: what a place reports that says something about the place.
_METRICS = ("first_step", "device_memory_peak")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUnit:
    """Where a number was measured: a machine, and the device if it was on one; `uuid` is empty where not known."""

    node: str
    device: str = ""
    uuid: str = ""

    def __str__(self) -> str:
        device = f"/{self.device}" if self.device else ""
        return f"{self.node}{device}" + (f" ({self.uuid})" if self.uuid else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One place's number: of several processes there, their geometric mean."""

    run: str
    bench: str
    metric: str
    place: MeasuredUnit
    value: float
    units: str
    direction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What places like these do: median, and standard deviation of logarithms from their median absolute deviation.

    `places` are the places' names with their numbers, so that anybody can recompute the others.
    """

    bench: str
    metric: str
    units: str
    direction: str
    median: float
    spread: float
    places: Mapping[str, float]

    def limit(self, level: float, floor: float) -> float:
        """How far, on logarithms, a good place's number may be from the median: `level` of them are nearer.

        The Student quantile for the freedom that a median absolute deviation has, widened because the median is one
        of few places too.
        """
        n = len(self.places)
        freedom = max(1.0, _MAD_EFFICIENCY * (n - 1))
        reach = t_quantile((1 + level) / 2, freedom) * self.spread * math.sqrt(1 + math.pi / (2 * n))
        return max(reach, math.log1p(floor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The expected numbers of a fleet, and the runs they come from; `suspects` says in words which are suspect, and why."""

    runs: tuple[str, ...]
    expected: tuple[Expected, ...]
    suspects: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "schema": SCHEMA,
            "kind": KIND,
            "runs": list(self.runs),
            "suspects": list(self.suspects),
            "expected": [
                {
                    "bench": one.bench,
                    "metric": one.metric,
                    "units": one.units,
                    "direction": one.direction,
                    "n": len(one.places),
                    "median": one.median,
                    "spread": one.spread,
                    "places": dict(one.places),
                }
                for one in self.expected
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A place that falls out of a baseline: by how much (relative, signed), what would be within, and the rule in words."""

    place: MeasuredUnit
    run: str
    bench: str
    metric: str
    value: float | None
    units: str
    expected: float
    deviation: float | None
    within: float
    side: Literal["worse", "better", "different", "failed"]
    rule: str

    def to_json(self) -> dict[str, Any]:
        """For `outliers --json`."""
        return {
            "node": self.place.node,
            "device": self.place.device or None,
            "uuid": self.place.uuid or None,
            "run": self.run,
            "bench": self.bench,
            "metric": self.metric,
            "value": self.value,
            "units": self.units,
            "expected": self.expected,
            "deviation": self.deviation,
            "within": self.within,
            "side": self.side,
            "rule": self.rule,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What falls out, how many numbers were judged, what could not be judged with the reason, and what is suspect with its."""

    outliers: tuple[Outlier, ...]
    judged: int
    unjudged: tuple[str, ...] = ()
    level: float = LEVEL
    suspects: tuple[str, ...] = ()

    @property
    def by_chance(self) -> float:
        """How many numbers of a good fleet would fall out at this level; fewer where the floor decides."""
        return self.judged * (1 - self.level)

    def to_json(self) -> dict[str, Any]:
        """For `outliers --json`."""
        return {
            "schema": SCHEMA,
            "outliers": [one.to_json() for one in self.outliers],
            "judged": self.judged,
            "by_chance": self.by_chance,
            "level": self.level,
            "unjudged": list(self.unjudged),
            "suspects": list(self.suspects),
        }


@dataclass(slots=True)
class _Group:
    """The numbers of one metric, place by place."""

    units: str
    direction: str
    values: dict[MeasuredUnit, list[float]] = field(default_factory=dict)


def samples(summary: Summary) -> tuple[Sample, ...]:
    """One number for each benchmark, metric and place of a run; invalid and failed ones are left out."""
    return tuple(
        Sample(
            run=summary.run,
            bench=bench.bench,
            metric=metric,
            place=place,
            value=geometric_mean(values),
            units=group.units,
            direction=group.direction,
        )
        for bench in summary.benchmarks
        if bench.validity != "invalid"
        for metric, group in _groups(summary, bench).items()
        for place, values in group.values.items()
    )


def _groups(summary: Summary, bench: BenchSummary) -> dict[str, _Group]:
    """The numbers of a benchmark by metric: the rate, the energy for an item, and what else tells of a place."""
    groups: dict[str, _Group] = {}

    def take(metric: str, place: MeasuredUnit, value: float, units: str, direction: str) -> None:
        group = groups.setdefault(metric, _Group(units, direction))
        if group.units == units and value > 0:
            group.values.setdefault(place, []).append(value)

    place_of: dict[str, MeasuredUnit] = {}
    told = energies(bench)
    for one in bench.processes:
        place, rate = _place(summary, one), one.throughput
        place_of |= dict.fromkeys(one.steps, place)
        take("rate", place, rate.value, rate.units, rate.direction)
        joules = joules_per_item(one, told)
        if joules is not None:
            take("energy", place, joules, f"J/{item_of(rate.units)}", "lower")
    for metric in bench.metrics:
        name, value, step = str(metric.get("metric")), finite_number(metric.get("value")), str(metric.get("step"))
        if name in _METRICS and value is not None and step in place_of:
            take(name, place_of[step], value, str(metric.get("units", "")), str(metric.get("direction", "none")))
    return groups


def baseline(summaries: Sequence[Summary]) -> Baseline:
    """What the places of these runs do; a place that is in several runs counts once, with the mean of its numbers."""
    groups: dict[tuple[str, str, str], tuple[str, dict[str, list[float]]]] = {}
    for summary in summaries:
        for one in samples(summary):
            _, places = groups.setdefault((one.bench, one.metric, one.units), (one.direction, {}))
            places.setdefault(str(one.place), []).append(one.value)
    expected = []
    for (bench, metric, units), (direction, places) in sorted(groups.items()):
        values = {place: geometric_mean(found) for place, found in sorted(places.items())}
        middle, spread = robust([math.log(value) for value in values.values()])
        expected.append(
            Expected(
                bench=bench,
                metric=metric,
                units=units,
                direction=direction,
                median=math.exp(middle),
                spread=spread,
                places=values,
            )
        )
    suspects = tuple(told for summary in summaries for told in _suspects(summary))
    return Baseline(runs=tuple(summary.run for summary in summaries), expected=tuple(expected), suspects=suspects)


def _suspects(summary: Summary) -> Iterable[str]:
    """Which numbers of a run are used although they are suspect."""
    for bench in summary.benchmarks:
        if bench.validity == "suspect":
            yield f"{bench.bench} of {summary.run}: {', '.join(bench.reasons)}"


def robust(values: Sequence[float]) -> tuple[float, float]:
    """(median, standard deviation as the median absolute deviation tells it for a normal distribution)."""
    return median(values), MAD_TO_SD * median_absolute_deviation(values)


def outliers(
    summaries: Iterable[Summary], reference: Baseline, *, level: float = LEVEL, floor: float = FLOOR
) -> Findings:
    """The nodes and devices of runs that fall out of a baseline, the worst first, and what could not be judged."""
    known = {(one.bench, one.metric): one for one in reference.expected}
    found: list[Outlier] = []
    unjudged: dict[str, None] = {}
    suspects: list[str] = []
    judged = 0
    for summary in summaries:
        for one in samples(summary):
            expected = known.get((one.bench, one.metric))
            why = _not_comparable(one, expected)
            if why or expected is None:
                unjudged[f"{one.bench} {one.metric}: {why}"] = None
                continue
            judged += 1
            away = math.log(one.value / expected.median)
            limit = expected.limit(level, floor)
            if abs(away) > limit:
                found.append(_fallen(one, expected, away, limit, floor, level))
        suspects += _suspects(summary)
        for bench in summary.benchmarks:
            found += _failed(summary, bench, known.get((bench.bench, "rate")))
        absent = {bench for bench, _ in known} - {bench.bench for bench in summary.benchmarks}
        unjudged |= dict.fromkeys(f"{bench}: {summary.run} did not run it" for bench in sorted(absent))
    found.sort(key=lambda one: (one.side != "failed", -abs(one.deviation or 0.0)))
    return Findings(
        outliers=tuple(found), judged=judged, unjudged=tuple(unjudged), level=level, suspects=tuple(suspects)
    )


def baseline_from_json(value: Mapping[str, Any], where: str) -> Baseline:
    """The baseline in a file's JSON. Raises RecordError, naming the file, when it is none."""
    if value.get("kind") != KIND:
        raise RecordError(f"{where}: is no baseline; `milabench baseline RUN... -o {where}` makes one")
    if value.get("schema") != SCHEMA:
        raise RecordError(f"{where}: has schema {value.get('schema')!r}, and this version reads {SCHEMA}; make it anew")
    listed, expected = value.get("expected"), []
    for place, entry in enumerate(listed if isinstance(listed, list) else ()):
        told = as_mapping(entry)
        values = {
            str(name): found for name, each in as_mapping(told.get("places")).items() if (found := finite_number(each))
        }
        middle, spread = finite_number(told.get("median")), finite_number(told.get("spread"))
        if middle is None or middle <= 0 or spread is None or spread < 0 or not values:
            raise RecordError(f"{where}: expected[{place}]: has no median, spread or places; make the baseline anew")
        expected.append(
            Expected(
                bench=str(told.get("bench")),
                metric=str(told.get("metric")),
                units=str(told.get("units", "")),
                direction=str(told.get("direction", "none")),
                median=middle,
                spread=spread,
                places=values,
            )
        )
    runs = value.get("runs")
    suspects = value.get("suspects")
    return Baseline(
        runs=tuple(map(str, runs)) if isinstance(runs, list) else (),
        expected=tuple(expected),
        suspects=tuple(map(str, suspects)) if isinstance(suspects, list) else (),
    )


def _not_comparable(one: Sample, expected: Expected | None) -> str:
    if expected is None:
        return "is not in the baseline"
    if expected.units != one.units:
        return f"is in {one.units or 'no units'}, the baseline in {expected.units or 'no units'}"
    if len(expected.places) < LEAST_PLACES:
        return f"the baseline has {len(expected.places)} places, and {LEAST_PLACES} are needed"
    return ""


def _fallen(one: Sample, expected: Expected, away: float, limit: float, floor: float, level: float) -> Outlier:
    is_higher = away > 0
    side: Literal["worse", "better", "different"] = "different"
    if one.direction in ("higher", "lower"):
        side = "better" if is_higher == (one.direction == "higher") else "worse"
    within = math.expm1(limit)
    from_floor = limit <= math.log1p(floor)
    rule = (
        f"further than {within:.1%} from the median of {len(expected.places)} places: "
        + ("the least that counts" if from_floor else f"{level:.1%} of places are nearer, by their spread")
    )  # fmt: skip
    return Outlier(
        place=one.place,
        run=one.run,
        bench=one.bench,
        metric=one.metric,
        value=one.value,
        units=one.units,
        expected=expected.median,
        deviation=math.expm1(away),
        within=within,
        side=side,
        rule=rule,
    )


def _failed(summary: Summary, bench: BenchSummary, expected: Expected | None) -> Iterable[Outlier]:
    """The steps that did not pass where the places of the baseline did."""
    if expected is None:
        return
    for failure in bench.failures:
        detail = f": {failure.detail}" if failure.detail else ""
        yield Outlier(
            place=_place_of_step(summary, failure.step.removeprefix(bench.bench).split(".")),
            run=summary.run,
            bench=bench.bench,
            metric="rate",
            value=None,
            units=expected.units,
            expected=expected.median,
            deviation=None,
            within=0.0,
            side="failed",
            rule=f"{failure.step} did not pass: {failure.why}{detail}",
        )


def _place(summary: Summary, process: ReplicateResult) -> MeasuredUnit:
    node, _, tag = process.place.partition("/")
    return _node(summary, node, tag)


def _place_of_step(summary: Summary, suffixes: Sequence[str]) -> MeasuredUnit:
    """The place that the suffixes of a step's id tell: its device, and the node where there are several."""
    names = {str(node.get("name")) for node in _nodes(summary)}
    name = next((part for part in suffixes if part in names), "")
    return _node(summary, name, next((part for part in suffixes if part[:1] == "D" and part[1:].isdigit()), ""))


def _nodes(summary: Summary) -> list[Mapping[str, Any]]:
    listed = summary.system.get("nodes")
    return [as_mapping(node) for node in listed] if isinstance(listed, list) else []


def _node(summary: Summary, name: str, tag: str) -> MeasuredUnit:
    """The machine called `name` in a run, by its host name, with its device; a lone machine needs no name."""
    nodes = _nodes(summary)
    node = next((node for node in nodes if node.get("name") == name), nodes[0] if len(nodes) == 1 else {})
    host = str(node.get("hostname") or node.get("name") or name or summary.run)
    devices = node.get("devices")
    for device in devices if isinstance(devices, list) else ():
        told = as_mapping(device)
        if tag == f"D{told.get('index')}":
            return MeasuredUnit(node=host, device=tag, uuid=str(told.get("uuid") or ""))
    return MeasuredUnit(node=host, device=tag)
