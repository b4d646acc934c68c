"""Scores of tenders: SSI, SSNI, SSP, the throughput of a filled module, indices.

A metric is a value of `METRICS`: a mean of a term for each benchmark, times a scale. Each names its source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from milabench.analysis.throughput import Direction
from milabench.errors import ConfigError, Problem
from milabench.procurement.uncertainty import Mean, UncertainValue, product, same_units, sum_of, weighted_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFigures:
    """A benchmark of an offer: its figure of merit there and on the reference, in the same units, and values that the rules fix.

    `direction` says which figures are better. `capability` is c: how many times larger the problem is than on the reference.
    `nodes` and `reference_nodes` are those that the benchmark uses. `work` is the count of a run that the
    buyer fixed, in the units that the score is to have (TFLOP). `weight` may count jobs.
    """

    name: str
    offered: UncertainValue
    reference: UncertainValue | None = None
    direction: Direction = "higher"
    weight: float = 1.0
    capability: float = 1.0
    nodes: float | None = None
    reference_nodes: float | None = None
    work: UncertainValue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSize:
    """The number of nodes of the offered machine and of the reference."""

    nodes: float | None = None
    reference_nodes: float | None = None


Term = Callable[[BenchmarkFigures, MachineSize], UncertainValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMetric:
    """A score as a value: `scale(machine, sum of weights)` times a mean of `term` over benchmarks.

    `needs` names the fields of `BenchmarkFigures` and, with `machine.`, of `MachineSize` that must be given. `means` are those
    that the source allows, the first being its own. `least_speedup` is the rule on each S, with whether S may equal it.
    """

    title: str
    formula: str
    source: str
    term: Term
    needs: tuple[str, ...]
    units: str = ""
    means: tuple[Mean, ...] = ("geometric",)
    scale: Callable[[MachineSize, float], float] = lambda _machine, _weights: 1.0
    least_speedup: tuple[float, bool] | None = None
    is_weighted: bool = True
    is_by_share: bool = True
    is_time_needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTerm:
    """A benchmark's part of a score: its weight, S, U, its term of the mean, and the rule that S breaks.

    `weight` is the metric's input: the share of the weights, or the weight itself where they are counts of jobs (throughput).
    `doubt` is why the interval of S does not confirm the rule.
    """

    name: str
    weight: float
    term: UncertainValue
    speedup: UncertainValue | None = None
    utilization: float | None = None
    breach: str = ""
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferScore:
    """A score with its terms. A score with a `breaches` entry is not admissible, and is shown as it is."""

    metric: str
    mean: Mean
    value: UncertainValue
    terms: tuple[ScoreTerm, ...]

    @property
    def breaches(self) -> tuple[str, ...]:
        """The broken rules, a line for each benchmark."""
        return tuple(f"{term.name}: {term.breach}" for term in self.terms if term.breach)


def speedup(bench: BenchmarkFigures) -> UncertainValue:
    """Return S: the figure over the reference's, inverted for times. Raises ConfigError for different units."""
    assert bench.reference is not None  # `metric_problems` was here
    same_units([bench.offered, bench.reference], bench.name)
    power = -1 if bench.direction == "lower" else 1
    return product([(bench.offered, power), (bench.reference, -power)])


def utilization(bench: BenchmarkFigures, machine: MachineSize) -> float:
    """Return U = (n_ref / n) (N / N_ref): how many more copies of the benchmark fill the machine than fill the reference."""
    return (_given(bench.reference_nodes) / _given(bench.nodes)) * (
        _given(machine.nodes) / _given(machine.reference_nodes)
    )


def _given(number: float | None) -> float:
    assert number is not None  # `_require` or `metric_problems` was here
    return number


def _ssi_term(bench: BenchmarkFigures, machine: MachineSize) -> UncertainValue:
    return product([(speedup(bench), 1)], bench.capability * utilization(bench, machine))


def _speedup_term(bench: BenchmarkFigures, _machine: MachineSize) -> UncertainValue:
    return speedup(bench)


def _rate_of_a_node(bench: BenchmarkFigures, _machine: MachineSize) -> UncertainValue:
    assert bench.work is not None
    return product([(bench.work, 1), (bench.offered, -1)], 1 / _given(bench.nodes), f"{bench.work.units}/s")


def _jobs_an_hour(bench: BenchmarkFigures, machine: MachineSize) -> UncertainValue:
    return product([(bench.offered, -1)], 3600 * _given(machine.nodes) / _given(bench.nodes))


_NODES = ("nodes", "reference_nodes", "machine.nodes", "machine.reference_nodes")

METRICS: Final[Mapping[str, ScoreMetric]] = MappingProxyType(
    {
        "ssi": ScoreMetric(
            title="scalable system improvement",
            formula="(prod (c U S)^w)^(1 / sum w), U = (n_ref / n) (N / N_ref)",
            source="nersc.gov, APEX benchmarks, SSI page",
            needs=("reference", *_NODES),
            term=_ssi_term,
            least_speedup=(1.0, True),
        ),
        "ssni": ScoreMetric(
            title="scaled single-node improvement",
            formula="(N / N_ref) (prod S^w)^(1 / sum w)",
            source="github lanl/benchmarks, introduction, SSNI-baseline.xlsx",
            needs=("reference", "machine.nodes", "machine.reference_nodes"),
            term=_speedup_term,
            scale=lambda machine, _: _given(machine.nodes) / _given(machine.reference_nodes),
            least_speedup=(1.0, False),
        ),
        "ssp": ScoreMetric(
            title="sustained system performance",
            formula="N mean(work / (t n))",
            source="nersc.gov, NERSC-8 and Trinity RFP, SSP; Kramer for the other means",
            units="work/s",
            needs=("work", "nodes", "machine.nodes"),
            term=_rate_of_a_node,
            means=("geometric", "arithmetic", "harmonic"),
            scale=lambda machine, _: _given(machine.nodes),
            is_weighted=False,
            is_time_needed=True,
        ),
        "throughput": ScoreMetric(
            title="suites per hour on a filled module",
            formula="3600 s / sum (w t n / N)",
            source="github PDC-support/arrhenius-benchmarks, README",
            units="suites/h",
            needs=("nodes", "machine.nodes"),
            term=_jobs_an_hour,
            means=("harmonic",),
            is_by_share=False,
            scale=lambda _, weights: 1 / weights,
            is_time_needed=True,
        ),
        "index": ScoreMetric(
            title="weighted geometric mean of ratios",
            formula="(prod S^w)^(1 / sum w)",
            source="Fleming and Wallace 1986",
            needs=("reference",),
            term=_speedup_term,
        ),
    }
)
REMOVED_METRICS: Final = dict.fromkeys(("specspeed", "specrate"), "it was removed: index is the same mean of ratios")


def offer_score(
    metric: str, benchmarks: Sequence[BenchmarkFigures], machine: MachineSize | None = None, mean: Mean | None = None
) -> OfferScore:
    """Return a score of `METRICS` over these benchmarks, which may be a part of all.

    `mean` is one that its source allows. Raises ConfigError for what only the bids show to be missing or impossible.
    """
    definition, machine = METRICS[metric], machine or MachineSize()
    mean = mean or definition.means[0]
    _require(metric, definition, benchmarks, machine)
    weights = [bench.weight for bench in benchmarks]
    total = math.fsum(weights)
    values = [definition.term(bench, machine) for bench in benchmarks]
    whole = weighted_mean(mean, values, weights)
    units = definition.units if definition.units != "work/s" else whole.units
    terms = []
    for bench, value in zip(benchmarks, values, strict=True):
        ratio = speedup(bench) if "reference" in definition.needs else None
        terms.append(
            ScoreTerm(
                name=bench.name,
                weight=bench.weight / total if definition.is_by_share else bench.weight,
                term=value,
                speedup=ratio,
                utilization=utilization(bench, machine) if metric == "ssi" else None,
                breach=_breach(definition, ratio),
                doubt=_doubt(definition, ratio),
            )
        )
    return OfferScore(
        metric=metric,
        mean=mean,
        value=product([(whole, 1)], definition.scale(machine, total), units),
        terms=tuple(terms),
    )


def _breach(definition: ScoreMetric, ratio: UncertainValue | None) -> str:
    """Return which rule a speed-up breaks. It is never replaced by the smallest allowed value."""
    if definition.least_speedup is None or ratio is None:
        return ""
    least, may_equal = definition.least_speedup
    # What equals it but for rounding equals it: a system that is its own reference breaks no rule.
    is_least = math.isclose(ratio.value, least, rel_tol=1e-12)
    if may_equal if is_least else ratio.value > least:
        return ""
    return f"speed-up S = {ratio.value:.4g}, the tender requires S {'>=' if may_equal else '>'} {least:g}"


def _doubt(definition: ScoreMetric, ratio: UncertainValue | None) -> str:
    """Return why an interval does not show on which side of the rule a speed-up is. The rule itself is on the value."""
    if definition.least_speedup is None or ratio is None:
        return ""
    interval, least = ratio.interval(), definition.least_speedup[0]
    if interval is None:
        return "inconclusive: no interval"
    return f"inconclusive: [{interval[0]:.4g}, {interval[1]:.4g}]" if interval[0] < least < interval[1] else ""


def _require(
    metric: str, definition: ScoreMetric, benchmarks: Sequence[BenchmarkFigures], machine: MachineSize
) -> None:
    """Raise ConfigError for unknown nodes, for more nodes than the machine has, and for figures that are not the needed time."""
    problems: list[Problem] = []
    for bench in benchmarks:
        for used, owned in (("nodes", machine.nodes), ("reference_nodes", machine.reference_nodes)):
            number, path = getattr(bench, used), f"{bench.name}.{used}"
            if used in definition.needs and number is None:
                problems.append(Problem("", path, f"is missing, {metric} needs it"))
            elif used in definition.needs and owned is not None and number > owned:
                problems.append(Problem("", path, f"{number:g}, more than the {owned:g} of the machine"))
        if definition.is_time_needed and (bench.direction != "lower" or bench.offered.units not in {"", "s"}):
            given = f"{bench.offered.units or 'a figure'}, {bench.direction} is better"
            problems.append(Problem("", bench.name, f"{metric} needs the time of a run in s, got {given}"))
    if problems:
        raise ConfigError(problems)


def potency(phases: Sequence[tuple[UncertainValue, float]]) -> UncertainValue:
    """Return the sum of SSP times duration, in unit-years, of the (SSP, months) of each phase of a delivery.

    Phases are independent but for the sources that they share. Raises ConfigError for SSPs in different units.
    """
    return sum_of([product([(ssp, 1)], months / 12, f"{ssp.units} years".strip()) for ssp, months in phases])


def potency_value(whole: UncertainValue, cost: UncertainValue) -> UncertainValue:
    """Return the potency for a unit of the cost: unit-years for each unit of money."""
    return product([(whole, 1), (cost, -1)], 1.0, f"{whole.units}/{cost.units or '1'}")
