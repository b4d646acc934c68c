"""How much has to be measured so that a good system passes its criteria: repeats, hours and nodes, from the noise of a pilot.

`accept` decides a bound by the repeats of all instances together (docs/reference/criteria.md). The power of that test is in
statistical_power.py. A plan for nodes is for a sample of them, whose speeds differ as the pilot's nodes do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from milabench.acceptance.criteria import BenchCriteria, Bound, Criteria, Quantity
from milabench.acceptance.evaluate import bound_numbers, requirement_text
from milabench.analysis.intervals import LEAST_LAUNCHES, normal_quantile
from milabench.analysis.json_codec import JsonKey
from milabench.analysis.sample_statistics import geometric_mean, log_stdev, mean, stdev
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.uncertainty import launches_for
from milabench.procurement.statistical_power import (
    LaunchPlan,
    Noise,
    PowerQuestion,
    cheapest_plan,
    fewest_launches,
)

_MOST_PER_NODE, _MOST_NODES = 30, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCriterion:
    """The needs of a criterion. `expected` is in `units`, or times the reference. `spread` is over logarithms of repeats.

    `launches` are of all instances at once, in sequence. None where no number is enough, or it is not known:
    `missing` says why. `sample` is the smallest sample of nodes with repeats on each. None where the spread between nodes is not
    known. `power` is the power of the repeats, None where the pilot's number is suspect: `missing` says so.
    """

    bench: str
    criterion: str
    requirement: str
    expected: float | None = None
    units: str = ""
    spread: float | None = None
    spread_nodes: float | None = None
    launches: int | None = None
    power: float | None = None
    sample: LaunchPlan | None = None
    missing: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBench:
    """The needs of a benchmark: the repeats of its most demanding criterion, of `seconds` each on `nodes`."""

    bench: str
    launches: int | None
    nodes: int
    seconds: Annotated[float | None, JsonKey("seconds_each", followed_by=("hours", "node_hours"))] = None

    @property
    def hours(self) -> float | None:
        """From the first repeat to the end of the last."""
        return None if self.seconds is None or self.launches is None else self.launches * self.seconds / 3600

    @property
    def node_hours(self) -> float | None:
        """Hours of all of its nodes."""
        return None if self.hours is None else self.hours * self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptancePlan:
    """Repeats, nodes and hours that give each criterion its power, where the system equals the pilot."""

    title: str
    pilot: str
    reference: str | None
    file: Annotated[str, JsonKey("criteria")]
    power: Annotated[float, JsonKey(followed_by=("is_complete", "power_of_all", "hours", "node_hours"))]
    criteria: Annotated[tuple[PlannedCriterion, ...], JsonKey("checks")]
    benchmarks: tuple[PlannedBench, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every criterion has its repeats, and their power."""
        return all(criterion.launches is not None and not criterion.missing for criterion in self.criteria)

    @property
    def power_of_all(self) -> float:
        """The minimum probability that all pass, where a criterion may fail without another."""
        return max(0.0, 1 - math.fsum(1 - (criterion.power or 0.0) for criterion in self.criteria))

    @property
    def hours(self) -> float | None:
        """Hours of the benchmarks with known repeats and durations, in sequence. None where no benchmark's are known."""
        return _sum_of_known([bench.hours for bench in self.benchmarks])

    @property
    def node_hours(self) -> float | None:
        """Those on each node."""
        return _sum_of_known([bench.node_hours for bench in self.benchmarks])


def _sum_of_known(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return math.fsum(known) if known else None


def plan_acceptance(
    criteria: Criteria,
    pilot: Summary,
    reference: Summary | None,
    *,
    power: float = 0.95,
    seconds: Mapping[str, float] | None = None,
) -> AcceptancePlan:
    """Return the plan by which a system like the pilot's passes each criterion with this probability.

    `reference` is the run of `x reference`. For the pilot itself, a ratio of 1 is expected. `seconds` is the time of a repeat of
    each benchmark.
    """
    measured = {bench.bench: bench for bench in pilot.benchmarks}
    expected = {bench.bench: bench for bench in reference.benchmarks} if reference is not None else {}
    planned = [
        criterion
        for bench in criteria.benchmarks
        for criterion in _BenchPlan(bench, measured.get(bench.name), expected.get(bench.name), power).criteria()
    ]
    return AcceptancePlan(
        title=criteria.title,
        pilot=pilot.run,
        reference=None if reference is None else reference.run,
        file=criteria.file,
        power=power,
        criteria=tuple(planned),
        benchmarks=tuple(
            _total(bench.name, planned, measured.get(bench.name), seconds or {}) for bench in criteria.benchmarks
        ),
    )


def _total(
    name: str, planned: Sequence[PlannedCriterion], measured: BenchSummary | None, seconds: Mapping[str, float]
) -> PlannedBench:
    own = [criterion for criterion in planned if criterion.bench == name]
    launches = [criterion.launches for criterion in own if criterion.launches is not None]
    is_known = measured is not None and len(launches) == len(own)
    nodes = max(1, 0 if measured is None else measured.nodes)
    # A benchmark without bounds has to run, once.
    most = max([1, *launches]) if is_known else None
    return PlannedBench(bench=name, launches=most, nodes=nodes, seconds=seconds.get(name))


@dataclass(frozen=True, slots=True)
class _BenchPlan:
    """A benchmark's criteria, its numbers in the pilot and in the reference, and the power that each criterion is to have."""

    asked: BenchCriteria
    pilot: BenchSummary | None
    reference: BenchSummary | None
    power: float

    def criteria(self) -> Iterator[PlannedCriterion]:
        for name, quantity, bound in self.asked.of_quantities:
            yield self._unless_suspect(self._of_bound(name, quantity, bound))
        for one, _, bound in self.asked.of_curve:
            yield PlannedCriterion(
                bench=self.asked.name,
                criterion=one.name,
                requirement=str(bound),
                missing="a plan: points of curves are not planned, but the pilot's report has their spread over repeats",
                where=bound.where,
            )

    def _unless_suspect(self, planned: PlannedCriterion) -> PlannedCriterion:
        """Return the criterion without a power where the pilot's number is suspect for a reason that is not accepted."""
        reasons = [] if self.pilot is None else sorted({*self.pilot.doubts} - {*self.asked.allow})
        if planned.launches is None or not reasons:
            return planned
        missing = (
            f"numbers to trust: the pilot's are suspect ({', '.join(reasons)}), which no number of repeats changes and `accept`"
            " does not pass. Measure it again without that, or let `allow` accept it"
        )
        return replace(planned, power=None, missing=missing)

    def _of_bound(self, name: str, quantity: Quantity, bound: Bound) -> PlannedCriterion:
        pilot, reference, is_minimum = self.pilot, self.reference, name == "minimum"
        planned = PlannedCriterion(
            bench=self.asked.name,
            criterion=name,
            requirement=requirement_text(bound, quantity, is_minimum=is_minimum),
            where=bound.where,
        )
        if pilot is None:
            return replace(planned, missing=f"a measurement of its {quantity} in the pilot")
        found = bound_numbers(pilot, reference, quantity, bound)
        if found.missing:
            return replace(planned, missing=f"{found.missing}; the pilot: {found.measured}")
        values, base = found.values, found.base
        expected = geometric_mean(values) / (geometric_mean(base) if base else 1.0)
        planned = replace(planned, expected=expected, units="x reference" if base else found.units)
        if math.isclose(expected, bound.value, rel_tol=1e-12) or (expected > bound.value) != is_minimum:
            hint = ". Name a pilot of the system to be accepted as RUN" if pilot is reference else ""
            return replace(planned, missing=f"a better system: it is expected at the bound or beyond{hint}")
        if self.asked.confidence is None or quantity == "memory_peak":  # the measured value decides
            return replace(planned, launches=1, power=1.0)
        if len(values) < LEAST_LAUNCHES:
            missing = f"repeats of the pilot: {len(values)} of at least {LEAST_LAUNCHES} that a spread needs"
            return replace(planned, missing=missing)
        is_rate = quantity in ("rate", "system")
        of_nodes = _node_noise(pilot) if is_rate else None
        lost = _lost(pilot, reference if base else None, is_minimum=is_minimum) if is_rate else 0.0
        if (expected * math.exp(lost) > bound.value) != is_minimum:
            missing = f"a calmer pilot: the possible cost of disturbances ({abs(lost):.2%}) exceeds the bound"
            return replace(planned, missing=missing)
        question = PowerQuestion(
            expected=expected * math.exp(lost),
            bound=bound.value,
            power=self.power,
            confidence=self.asked.confidence,
            reference_error=(log_stdev(base) or 0.0) / math.sqrt(len(base)) if base else 0.0,
        )
        return _with_launches(planned, question, log_stdev(values) or 0.0, of_nodes, is_rate=is_rate)


def _lost(pilot: BenchSummary, reference: BenchSummary | None, *, is_minimum: bool) -> float:
    """Return the possible cost of disturbances towards the bound, as a logarithm. No number of repeats reduces it."""
    allowance = pilot.allowance if reference is None else pilot.allowance.over(reference.allowance)
    return -allowance.one_sided.below if is_minimum else allowance.one_sided.above


def _with_launches(
    planned: PlannedCriterion, question: PowerQuestion, spread: float, of_nodes: Noise | None, *, is_rate: bool
) -> PlannedCriterion:
    """Return the criterion with its repeats, and its sample of nodes where the noise of nodes is known."""
    planned = replace(planned, spread=spread, spread_nodes=None if of_nodes is None else of_nodes.between_nodes)
    noise = Noise(between_nodes=0.0, between_launches=spread)
    plan = fewest_launches(question, noise, least=LEAST_LAUNCHES)
    if plan is not None and is_rate:
        # So many that modes which they did not meet do not matter either: the floor of the number's interval.
        margin = question.distance - normal_quantile(question.power) * spread / math.sqrt(plan.launches)
        plan = fewest_launches(question, noise, least=max(plan.launches, launches_for(margin)))
    if plan is None:
        error = f" and the reference's error of {question.reference_error:.2%}" if question.reference_error else ""
        missing = (
            f"a larger distance: {question.distance:.2%} from the bound is too near for a spread of {spread:.2%}{error}"
        )
        return replace(planned, missing=missing)
    sample = None if of_nodes is None else cheapest_plan(question, of_nodes, _MOST_NODES, _MOST_PER_NODE)
    return replace(planned, launches=plan.launches, power=plan.power, sample=sample)


def _node_noise(bench: BenchSummary) -> Noise | None:
    """Return the spreads of the logarithms of nodes' own speeds, and of repeats on a node, by analysis of variance.

    None below two nodes, or without a second repeat on any. The instances of a node are averaged.
    """
    nodes: dict[str, dict[int, list[float]]] = {}
    for process in bench.processes:
        if "/" in process.slot and process.throughput.value > 0:
            node = process.slot.rpartition("/")[0]
            nodes.setdefault(node, {}).setdefault(process.repeat, []).append(math.log(process.throughput.value))
    launches = [[mean(instances) for instances in repeats.values()] for repeats in nodes.values()]
    freedom = sum(len(values) - 1 for values in launches)
    if len(launches) < 2 or not freedom:
        return None
    means = [mean(values) for values in launches]
    squares = math.fsum((v - m) ** 2 for values, m in zip(launches, means, strict=True) for v in values)
    within = squares / freedom
    between = max(0.0, stdev(means) ** 2 - within * mean([1 / len(values) for values in launches]))
    return Noise(between_nodes=math.sqrt(between), between_launches=math.sqrt(within))
