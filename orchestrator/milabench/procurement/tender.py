"""A tender, procurement.yaml -> values: the benchmarks, the score, the reference, and the terms.

All mistakes are reported together, each with its location. Its keys are declared like a suite's (config/kinds.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from milabench.config.declared_file import declared_values
from milabench.config.kinds import (
    Choice,
    Expression,
    Key,
    ListOf,
    Matching,
    Number,
    Record,
    RecordsByName,
    ShareText,
    key,
    record_of,
)
from milabench.config.problems import Problems
from milabench.config.sizes import SIZES
from milabench.config.source_map import Origins
from milabench.errors import ConfigError, Problem
from milabench.procurement.amounts import (
    CarbonMass,
    CarbonOfEnergy,
    Figure,
    Money,
    MoneyPerKwh,
    PartOfOne,
    PowerFactor,
    PowerInKw,
    Years,
)
from milabench.procurement.costs import AT_ONCE, Delivery, OwnershipCosts
from milabench.procurement.scores import METRICS, REMOVED_METRICS
from milabench.procurement.uncertainty import Mean, UncertainValue, constant
from milabench.workflow.files import read_file

Tier = Literal["as-is", "ported", "optimized"]
"""The changes a vendor may make: options and libraries, a little of the source to port it, anything with the same algorithm."""

Positive: TypeAlias = Annotated[float, Number(above=0)]
_Tiers: TypeAlias = Annotated[
    tuple[Tier, ...], ListOf(item=Choice(words=("as-is", "ported", "optimized")), lone=True, unique=True)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """The reference system: its run, bundle or JSON report, and its number of nodes, N_ref."""

    run: Path | None = key(
        "Run, bundle or JSON report with the reference's results, relative to this file.", default=None
    )
    nodes: Positive | None = key("Nodes that the reference system has, N_ref.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFigure:
    """The published figure of merit of a benchmark, and the nodes that it used, n_ref."""

    value: Figure | None = key("Published figure, with its units: `699.78 s`.", default=None)
    units: str = key("Its units, if the value has none.", default="")
    nodes: Positive | None = key("Nodes that the benchmark used on the reference, n_ref.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenderBenchmark:
    """A benchmark of a tender. An empty `figure_of_merit` is its main rate."""

    name: str = ""
    weight: Annotated[float, Number(at_least=0)] = key("Weight w in the score. Default: 1.", default=1.0)
    capability: Positive = key(
        "c: how many times larger the problem is than on the reference. Default: 1.", default=1.0
    )
    reference: ReferenceFigure = key("Published figure, instead of the reference run.", default=ReferenceFigure())
    figure_of_merit: Annotated[str, Expression()] = key(
        "A metric, or an expression over metrics and arguments such as `rate * 1.5`. Default: the main rate.",
        default="",
    )
    units: str = key("Units of the figure of merit, where it is an expression.", default="")
    better: Literal["higher", "lower"] | None = key(
        "Direction of better figures. Default: `lower` for times, else the metric's own direction.", default=None
    )
    tiers: _Tiers = key("Changes that an offer may make: `as-is`, `ported`, `optimized`.", default=("as-is", "ported"))
    is_required: bool = key("Whether an offer must have it. Default: true.", default=True, name="required")
    size: Annotated[str, Choice(words=SIZES)] = key("Size that must be run.", default="")
    work: Figure | None = key("Work of one run that the buyer fixes, for ssp: `1065 TFLOP`.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Inputs of money, energy and carbon. None where not given. Power in kW, carbon in g/kWh and kg."""

    currency: Annotated[str, Matching(pattern="[A-Z]{3}", expected="a currency of three letters such as EUR")] = key(
        "The only currency of tender and offers.", default=""
    )
    years: Years | None = key("Years of use over which the price is written off.", default=None)
    interest: Annotated[float, ShareText()] = key("Interest a year.", default=0.0)
    upkeep: Annotated[float, ShareText()] = key("Upkeep a year, of the price of the nodes.", default=0.0)
    electricity: MoneyPerKwh | None = key("Price of energy.", default=None)
    pue: PowerFactor | None = key("Power of the building for each watt of the system.", default=None)
    grid_carbon: CarbonOfEnergy | None = key("Carbon of energy at the place.", default=None)
    embodied_carbon: CarbonMass | None = key("Carbon of making a node.", default=None)
    utilization: PartOfOne | None = key(
        "Share of the year in which the system is busy.", default=None, alias="utilisation"
    )

    def ownership(
        self, price: UncertainValue, power_kw: UncertainValue, delivery: Delivery = AT_ONCE
    ) -> OwnershipCosts | None:
        """Return the costs of owning nodes of this price and power. None without years of use or a price of energy."""
        if self.years is None or self.electricity is None:
            return None
        return OwnershipCosts(
            price=price,
            years=self.years,
            power_kw=power_kw,
            electricity=replace(self.electricity, units=self.electricity.units.split("/")[0] or price.units),
            pue=self.pue or constant(1.0),
            energy_use=self.utilization or constant(1.0),
            interest=self.interest,
            upkeep=self.upkeep,
            delivery=delivery,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on all offers: money, power in kW, and the minimum score of each metric."""

    budget: Money | None = key("Most money.", default=None)
    power: PowerInKw | None = key("Most power of the whole system.", default=None)
    scores: Mapping[str, float] = field(default_factory=dict)


class _LimitKeys(Record):
    """The keys of limits: money, power, and a minimum score for each metric."""

    def __init__(self) -> None:
        scores = {
            name: Key(name, name, Number(above=0), f"Minimum {metric.title}.", None) for name, metric in METRICS.items()
        }
        super().__init__({**record_of(Limits).keys, **scores}, Limits)

    def build(self, values: Mapping[str, object], **others: Any) -> Any:
        """Return the limits."""
        return Limits(
            **{name: value for name, value in values.items() if name not in METRICS},  # type: ignore[arg-type]
            scores={name: value for name, value in values.items() if name in METRICS},  # type: ignore[misc]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tender:
    """A tender. `origin` knows the place and the text of every key: `origin.where("benchmarks.bert.weight")`.

    `digest` is the SHA-256 of its text.
    """

    file: str
    title: str = key("Heading of reports.", default="")
    suite: Path | None = key("The tender's own suite, relative to this file.", default=None)
    metric: Annotated[str, Choice(words=tuple(METRICS), removed=REMOVED_METRICS)] = key(
        "Metric of the score.", default="ssi"
    )
    mean: Mean | None = key("The mean, where the metric allows several.", default=None)
    reference: ReferenceRun = key("System that offers are compared with.", default=ReferenceRun())
    benchmarks: Annotated[Mapping[str, TenderBenchmark], RecordsByName(TenderBenchmark)] = key(
        "Benchmarks of the tender."
    )
    terms: Terms = key("Prices and terms for money, energy and carbon.", default=Terms())
    limits: Annotated[Limits, _LimitKeys()] = key("Limits on all offers.", default=Limits())
    digest: str = field(default="", compare=False)
    origin: Origins = field(compare=False, repr=False)


def tender_schema() -> dict[str, object]:
    """Return the JSON Schema of a tender, without its head."""
    return record_of(Tender).json_schema()


def parse_tender(content: bytes, name: str, folder: str = "") -> Tender:
    """Return the tender in a file's bytes, its paths relative to `folder`.

    Raises ConfigError with every problem, each at `name:line:column`.
    """
    root, values = declared_values(record_of(Tender), content, name, folder)
    origin, problems = Origins(root), Problems()
    benches = values["benchmarks"].items()
    values["benchmarks"] = {bench: _with_units(wanted, origin, problems) for bench, wanted in benches}
    digest = hashlib.sha256(content).hexdigest()
    tender: Tender = record_of(Tender).build(values, file=name, digest=digest, origin=origin)
    _check(tender, problems)
    problems.raise_any()
    return tender


def read_tender(path: Path) -> Tender:
    """Read a tender, procurement.yaml. Raises ConfigError with every problem in it."""
    return parse_tender(read_file(path, hint="check the path"), str(path), str(path.absolute().parent))


def _with_units(bench: TenderBenchmark, origin: Origins, problems: Problems) -> TenderBenchmark:
    """Return the benchmark with the units of its reference next to its value, which may be written as a key of its own."""
    value, units = bench.reference.value, bench.reference.units
    if value is None or not units:
        return bench
    if value.units not in ("", units):
        what = f"units differ: {units!r}, and {value.units!r} in the value"
        problems.add(origin.problem(f"benchmarks.{bench.name}.reference.units", what))
    return replace(bench, reference=replace(bench.reference, value=replace(value, units=units)))


def _check(tender: Tender, problems: Problems) -> None:
    """Note problems that no key shows by itself."""
    where = tender.origin.where
    if not tender.benchmarks:
        problems.add(tender.origin.problem("benchmarks", "names no benchmark", "name at least one"))
    elif not any(bench.weight for bench in tender.benchmarks.values()):
        first = next(iter(tender.benchmarks))
        problems.note(
            where(f"benchmarks.{first}.weight"), "benchmarks", "all weights are 0", "give at least one a weight"
        )
    if tender.origin.data("metric") is not None:  # else it is that of a command
        problems.extend(metric_problems(tender, tender.metric))
    terms, limits = tender.terms, tender.limits
    amounts = {"terms.electricity": terms.electricity, "limits.budget": limits.budget}
    problems.extend(
        currency_problems(amounts, tender.origin, terms.currency, "terms.currency", where("terms.currency"))
    )


def metric_problems(tender: Tender, metric_name: str) -> Iterator[Problem]:
    """Yield the values that a tender lacks for a metric of METRICS, its own or another."""
    problem, metric = tender.origin.problem, METRICS[metric_name]
    if tender.mean is not None and tender.mean not in metric.means:
        yield problem("mean", f"{metric_name} has no {tender.mean} mean", f"allowed: {', '.join(metric.means)}")
    if "machine.reference_nodes" in metric.needs and tender.reference.run is None and tender.reference.nodes is None:
        what = f"the nodes of the reference system are missing, {metric_name} needs them"
        place = tender.origin.where("reference") or tender.file
        yield Problem(place, "reference", what, "write 'reference: {nodes: 1024}'")
    is_weighted = len({bench.weight for bench in tender.benchmarks.values()}) > 1
    if "work" in metric.needs:
        yield from _work_problems(tender, metric_name)
    for name, bench in tender.benchmarks.items():
        path = f"benchmarks.{name}"
        if "reference" in metric.needs and tender.reference.run is None and bench.reference.value is None:
            hint = "give its reference a value, or the tender a reference run"
            yield problem(path, f"{metric_name} needs a reference, and it has none", hint)
        elif "reference_nodes" in metric.needs and tender.reference.run is None and bench.reference.nodes is None:
            what = f"the nodes that it used on the reference are missing, {metric_name} needs them"
            yield problem(path, what, "write 'reference: {nodes: 64}'")
        if is_weighted and not metric.is_weighted and tender.origin.data(f"{path}.weight") is not None:
            yield problem(f"{path}.weight", f"{metric_name} has no weights", "leave them out")


def _work_problems(tender: Tender, metric_name: str) -> Iterator[Problem]:
    """Yield each benchmark without its work, or with work in other units than the first benchmark's."""
    problem, known = tender.origin.problem, dict[str, str]()
    for name, bench in tender.benchmarks.items():
        path = f"benchmarks.{name}"
        if bench.work is None:
            yield problem(path, f"its work is missing, {metric_name} needs it", "write 'work: 1065 TFLOP'")
            continue
        known[name] = bench.work.units
        first, units = next(iter(known.items()))
        if bench.work.units != units:
            what = f"units differ: {units!r} of {first}, {bench.work.units!r} here"
            yield problem(f"{path}.work", what, "give all work in the same units")


def currency_problems(
    amounts: Mapping[str, UncertainValue | None], origin: Origins, currency: str, named: str, named_at: str
) -> Iterable[Problem]:
    """Yield a problem for each amount of money, by its key, in another currency than that which `named` says.

    Without a currency, the currency of the first amount is used.
    """
    for path, amount in amounts.items():
        if amount is None:
            continue
        own = amount.units.split("/")[0]
        if not currency:
            currency, named, named_at = own, path, origin.where(path)
        elif own != currency:
            what = f"is in {own}, and {named} at {named_at} is in {currency}"
            yield origin.problem(path, what, "convert to the same currency")


def tender_currency(tender: Tender) -> str:
    """Return the currency of a tender. Empty where it names none."""
    amounts = (tender.terms.electricity, tender.limits.budget)
    return tender.terms.currency or next((amount.units.split("/")[0] for amount in amounts if amount is not None), "")


def with_places(error: ConfigError, origin: Origins, prefix: str = "benchmarks.") -> ConfigError:
    """Return an error of a pure function, whose problems name keys such as `bert.weight`, with the places of these keys."""

    def at(problem: Problem) -> Problem:
        if problem.where or not problem.path:
            return problem
        for path in (problem.path, f"{prefix}{problem.path}"):
            if where := origin.where(path):
                return replace(problem, where=where, path=path)
        return problem

    return ConfigError(tuple(at(problem) for problem in error.problems)) if error.problems else error
