"""The figure of merit of a benchmark from its records, with the source of each of its numbers."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Annotated, Final

from milabench.analysis.comparison_model import System, SystemResult
from milabench.analysis.json_codec import NOT_WRITTEN, JsonKey
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.sides import sides_of
from milabench.analysis.summary_model import Validity
from milabench.analysis.throughput import Direction
from milabench.config.expr import check_expression, evaluate
from milabench.config.problems import UnplacedProblem
from milabench.config.source_map import Origins
from milabench.errors import ConfigError, Problem
from milabench.events.values import as_mapping, finite_number, written_number
from milabench.procurement.tender import TenderBenchmark
from milabench.procurement.uncertainty import Deviation, UncertainValue, constant, product, propagate
from milabench.shown import grouped

_TIMES: Final = ("s", "ms", "us", "min", "h")
MAIN_RATE: Final = "rate"
INSTANCES: Final = "instances"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedFigure:
    """A figure of merit with where it comes from: `where` are places in files, or the records of a run.

    `inputs` are the numbers that its formula is computed of, `launches` how many repeats of a run they are means of. None: it is
    declared or published. It is of one of `instances` that ran at once, or with `instances` 1 of all together.
    """

    value: Annotated[UncertainValue, NOT_WRITTEN]
    direction: Direction
    formula: str = ""
    where: tuple[str, ...] = ()
    inputs: Annotated[Mapping[str, UncertainValue], NOT_WRITTEN] = field(default_factory=dict)
    launches: int | None = None
    instances: Annotated[int, NOT_WRITTEN] = 1
    validity: Validity | None = None
    doubts: Annotated[tuple[str, ...], JsonKey("reasons")] = ()
    doubt_words: Annotated[tuple[str, ...], NOT_WRITTEN] = ()


def direction_of(wanted: TenderBenchmark, units: str, own: Direction = "higher") -> Direction:
    """Return which figures are better: as the tender says, lower for times, else as the metric itself says."""
    if wanted.better is not None:
        return wanted.better
    return "lower" if units in _TIMES else own


def side_of(bench: str, system: System, reference: System | None = None, *, across: bool = False) -> SystemResult:
    """Return the result of all instances of a benchmark on a system. With a reference only if it did the same work there.

    `across`: whatever the work is.
    """
    systems = [system] if reference is None else [reference, system]
    return sides_of(bench, systems, "system", across=across)[-1]


def measured_figure(
    wanted: TenderBenchmark, system: System, side: SystemResult, origin: Origins, source: str
) -> SourcedFigure:
    """Return the figure of merit of a benchmark that a system ran. `side` is its result.

    `source` names the system: figures share its deviation. Raises ConfigError, at its place in the
    tender, for an expression that has no value above zero.
    """
    rate = _main_rate(side, wanted.name, source)
    path = f"benchmarks.{wanted.name}.figure_of_merit"
    formula = wanted.figure_of_merit or MAIN_RATE
    metrics = {MAIN_RATE: (rate, side.direction), **dict(_other_metrics(wanted.name, system, side, rate, source))}
    place = origin.where(path) or origin.where(f"benchmarks.{wanted.name}")
    arguments = arguments_of(system, wanted.name)

    def evaluated(values: Mapping[str, UncertainValue]) -> UncertainValue:
        return figure_of_merit(formula, values, arguments, units=wanted.units, where=place, path=path)

    plain = {name: metric for name, (metric, _) in metrics.items()}
    value = evaluated(plain)
    inputs: dict[str, UncertainValue] = {}
    better: set[Direction] = set()
    for name, (metric, own) in metrics.items():
        raised = evaluated({**plain, name: product([(metric, 1)], 1.01, metric.units)}).value
        if raised != value.value:
            inputs[name] = metric
            better.add("higher" if (own == "higher") == (raised > value.value) else "lower")
    if len(better) > 1 and wanted.better is None and value.units not in _TIMES:
        what = f"of {', '.join(inputs)} some are better if higher, others if lower"
        raise ConfigError(
            Problem(place, path, what, "say which figures are better: 'better: higher' or 'better: lower'")
        )
    direction = wanted.better or (better.pop() if len(better) == 1 else direction_of(wanted, value.units))
    doubled = evaluated({**plain, **_of_twice_the_instances(plain, side.direction)}).value
    is_of_all = math.isclose(doubled, value.value * (0.5 if direction == "lower" else 2), rel_tol=1e-9)
    return SourcedFigure(
        value=value,
        direction=direction,
        formula=formula,
        where=tuple(_records(wanted.name, system)),
        inputs=inputs,
        launches=len(side.values),
        instances=1 if is_of_all else max(1, side.instances),
        validity=side.validity,
        doubts=side.doubts,
        doubt_words=side.doubt_words,
    )


def _of_twice_the_instances(metrics: Mapping[str, UncertainValue], better: Direction) -> Mapping[str, UncertainValue]:
    """Return the changed metrics of a benchmark if twice as many instances ran at once, each as fast as before."""
    power = {MAIN_RATE: 0.5 if better == "lower" else 2.0, INSTANCES: 2.0}
    return {name: product([(metrics[name], 1)], power[name], metrics[name].units) for name in power if name in metrics}


def _main_rate(side: SystemResult, bench: str, source: str) -> UncertainValue:
    """Return the rate of all instances together: the mean of the repeats, or of the sessions where there are several.

    Sessions may differ equally in all benchmarks: their difference is a single deviation of the system.
    """
    assert side.value is not None  # a side that counts has one
    spread = side.log_mean
    if spread is None:
        return UncertainValue(value=side.value, units=side.units, deviations=None)
    is_of_sessions = len(side.sessions) > 1 and spread.variance > spread.within[0]
    own_source = f"{source}:sessions" if is_of_sessions else f"{source}:{bench}:rate"
    moved = Deviation(spread.disturbed, math.inf, f"{source}:{bench}:disturbances")
    deviations = (Deviation(math.sqrt(spread.variance), spread.freedom, own_source), moved)
    return UncertainValue(value=side.value, units=side.units, deviations=tuple(each for each in deviations if each.sd))


def _other_metrics(
    bench: str, system: System, side: SystemResult, rate: UncertainValue, source: str
) -> Iterator[tuple[str, tuple[UncertainValue, Direction]]]:
    """Yield the rate of an instance, their number, the first step, memory and energy, and the program's own metrics."""
    each = -1 if side.direction == "lower" else 1
    if side.instances:
        yield INSTANCES, (constant(float(side.instances)), "higher")
        yield "instance_rate", (product([(rate, 1)], side.instances**-each, side.units), side.direction)
    single: Sequence[tuple[str, float | None, str]] = (
        ("first_step", side.first_step_s, "s"),
        ("memory_peak", side.memory_peak_mib, "MiB"),
        ("energy", side.joules_per_item, "J/item"),
    )
    for name, number, units in single:
        if number is not None and number > 0:
            yield name, (UncertainValue(value=number, units=units, deviations=None), "lower")
    for name, numbers in grouped(_own_metrics(bench, system)).items():
        values = [geometric_mean(of_launch) for of_launch in grouped(number[:2] for number in numbers).values()]
        *_, units, direction = numbers[-1]
        yield name, (UncertainValue.of_launches(values, units, f"{source}:{bench}:{name}"), direction)


def _own_metrics(bench: str, system: System) -> Iterator[tuple[str, tuple[object, float, str, Direction]]]:
    """Yield the program's own metrics: the repeat, the number, its units, its direction. One with cases has no single number."""
    for session in system.sessions:
        summary = session.by_name.get(bench)
        if summary is None:
            continue
        repeats = {step: process.repeat for process in summary.processes for step in process.steps}
        for metric in summary.metrics:
            name, value = str(metric.get("metric")), finite_number(metric.get("value"))
            is_one_number = name not in (MAIN_RATE, "first_step") and not metric.get("case") and not metric.get("part")
            if is_one_number and value is not None and value > 0 and metric.get("step") in repeats:
                launch = session.summary.run, repeats[str(metric["step"])]
                direction: Direction = "lower" if metric.get("direction") == "lower" else "higher"
                yield name, (launch, value, str(metric.get("units") or ""), direction)


def arguments_of(system: System, bench: str) -> Mapping[str, float]:
    """Return the arguments of a benchmark that are numbers, by names without dashes: `--batch-size 8` is `batch_size`."""
    suite = as_mapping(as_mapping(system.manifest.get("suite")).get(bench))
    return {
        str(option).lstrip("-").replace("-", "_"): number
        for option, value in as_mapping(suite.get("argv")).items()
        if (number := written_number(value)) is not None
    }


def _records(bench: str, system: System) -> Iterator[str]:
    """Yield the records behind a benchmark's repeats: the run, and the file of each of its steps."""
    for session in system.sessions:
        if (summary := session.by_name.get(bench)) is not None:
            steps = dict.fromkeys(step for process in summary.processes for step in process.steps)
            yield f"{session.summary.run or session.name}: {', '.join(f'{step}.data' for step in steps)}"


def figure_of_merit(
    expression: str,
    metrics: Mapping[str, UncertainValue],
    arguments: Mapping[str, float],
    *,
    units: str = "",
    where: str = "",
    path: str = "",
) -> UncertainValue:
    """Return the value of an expression such as `rate * sequence_length` with the uncertainty of the metrics in it.

    A name that is both a metric and an argument, or that the language lacks, is `metrics["..."]` or `arguments["..."]`.
    A metric alone has its own units if none are given. Raises ConfigError, with the place, for a figure not above zero.
    """

    def value(numbers: Mapping[str, float]) -> float:
        names = {**arguments, **numbers, "metrics": numbers, "arguments": arguments}
        result = evaluate(expression, names)
        if isinstance(result, bool) or not isinstance(result, int | float) or not 0 < result < math.inf:
            what = f"in the expression {expression!r}: a figure of merit is a number above zero, got {result!r}"
            raise UnplacedProblem(what)
        return float(result)

    try:
        check_expression(expression)
        _check_names(expression, metrics.keys() & arguments.keys())
        return propagate(value, metrics, units or (metrics[expression].units if expression in metrics else ""))
    except UnplacedProblem as error:
        raise ConfigError(Problem(where, path, str(error), error.hint)) from None


def _check_names(expression: str, twice: Set[str]) -> None:
    """Raise UnplacedProblem for a name that is there `twice`, as a metric and as an argument."""
    names = {node.id for node in ast.walk(ast.parse(expression.strip(), mode="eval")) if isinstance(node, ast.Name)}
    if both := names & twice:
        name = min(both)
        what = f"in the expression {expression!r}: {name!r} is both a metric and an argument"
        raise UnplacedProblem(what, f'write metrics["{name}"] or arguments["{name}"]')
