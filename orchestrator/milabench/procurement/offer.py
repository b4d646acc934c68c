"""An offer, offer.yaml -> values: a vendor's declaration of a system, and the records behind it.

All mistakes in it are reported together, each with its location. Whether it fits a tender is `offer_problems`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from milabench.config.declared_file import declared_values
from milabench.config.kinds import FilePath, ListOf, RecordsByName, Text, Whole, key, record_of
from milabench.config.problems import Problems, did_you_mean
from milabench.config.source_map import Origins
from milabench.errors import ConfigError, Problem
from milabench.procurement.amounts import Figure, Money, MoneyOrNone, PowerInKw
from milabench.procurement.costs import Cooling, design_power, provisioned_power
from milabench.procurement.tender import Positive, Tender, Tier, currency_problems, tender_currency
from milabench.procurement.uncertainty import UncertainValue
from milabench.workflow.files import read_file

PowerSource = Literal["board", "node", "meter", "provisioned", "L1", "L2", "L3"]
"""How a power is known: a device's own reading, a node's, a meter without a level, by design, or a level of the EE HPC WG."""
Standing = Literal["measured", "projected", "declared"]
"""The evidence of a figure: records at its count of nodes, records at other counts, or only the vendor's declaration."""
_Count: TypeAlias = Annotated[int, Whole(at_least=1, at_most=10**9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPrice:
    """Price of a node, and of the parts that do not depend on the number of nodes."""

    node: Money | None = key("Price of a node.", default=None)
    fixed: MoneyOrNone = key("Price of the rest, whatever the number of nodes.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPart:
    """Equal parts in a node."""

    count: _Count = key("How many of them.", default=1)
    power: PowerInKw = key("Most that each draws.")
    name: str = key("Kind of the parts.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSupply:
    """Equal supplies in a node, some of which may be spares."""

    count: _Count = key("How many there are.", default=1)
    needed: _Count | None = key("How many of them the node needs. Default: all.", default=None)
    power: PowerInKw = key("Rated power of each.")
    name: str = key("Equipment that they feed.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPower:
    """The power of a node at work, in kW, and how it is known. Of `parts` or `supplies` it is computed."""

    node: PowerInKw | None = key("Power of a node at work.", default=None)
    parts: tuple[PowerPart, ...] = key(
        "Instead of `node`: its processors, accelerators and scale-up switches, of which it is provisioned.", default=()
    )
    cooling: Cooling | None = key("With `parts`: `liquid` adds 30 % for the rest, `air` 50 %.", default=None)
    supplies: tuple[PowerSupply, ...] = key(
        "Instead of both: its power supplies. It is provisioned with those that it needs.", default=()
    )
    level: PowerSource = key(
        "How it is known: `board`, `node`, `meter`, `provisioned`, or the level `L1`, `L2`, `L3`.",
        default="provisioned",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPhase:
    """A phase of the delivery: a number of nodes for a number of months."""

    nodes: _Count = key("Nodes that are there.")
    months: Positive = key("Months until the next phase.")
    name: str = key("Name of the phase.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferBenchmark:
    """A benchmark of an offer: the records behind it, or a declared figure. `nodes` is n, the number that it uses.

    With `is_measured` false the figure at `nodes` is projected from runs at other counts.
    """

    name: str = ""
    runs: Annotated[tuple[Path, ...], ListOf(item=FilePath(), lone=True, distinct=True)] = key(
        "Run, bundle or JSON report, relative to this file. Several: of the same system, or of several counts of nodes.",
        default=(),
        name="run",
    )
    value: Figure | None = key("Its figure, where no run shows it: `350 s +- 5 %`.", default=None)
    nodes: _Count | None = key("Nodes that it uses, n. Default: the nodes of the run.", default=None)
    copies: Positive = key("Not used: it was part of a score that was removed.", default=1.0)
    tier: Tier = key("Kind of change: `as-is`, `ported` or `optimized`.", default="as-is")
    changes: Annotated[tuple[str, ...], ListOf(item=Text(), lone=True)] = key(
        "Files and flags that were changed.", default=()
    )
    is_measured: bool = key(
        "Whether it was measured on this number of nodes. Else it is projected from runs on other numbers.",
        default=True,
        name="measured",
    )
    bound: str = key(
        "Required above eight times the largest measured count. Names who guarantees the projection.", default=""
    )

    @property
    def standing(self) -> Standing:
        """The evidence of its figure."""
        if not self.is_measured:
            return "projected"
        return "measured" if self.runs else "declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An offer. `origin` knows the place and the text of every key: `origin.where("price.node")`."""

    file: str
    vendor: str = key("Who offers.")
    system: str = key("Name of the offered system.", default="")
    tender: str = key("Title of the tender that it answers.", default="")
    nodes: _Count = key("Nodes of the whole system, N.")
    price: OfferPrice = key("Its price.", default=OfferPrice())
    power: OfferPower = key("Power of a node.", default=OfferPower())
    phases: tuple[OfferPhase, ...] = key(
        "Phases of the delivery, in order. Nodes cost from the month on in which they are there.", default=()
    )
    stack: Mapping[str, Any] = key("Software and hardware, in free text by part.", default={})
    benchmarks: Annotated[Mapping[str, OfferBenchmark], RecordsByName(OfferBenchmark)] = key(
        "Evidence for each benchmark.", default={}
    )
    origin: Origins = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """Its name in reports."""
        return f"{self.vendor} {self.system}".strip()


def offer_schema() -> dict[str, object]:
    """Return the JSON Schema of an offer, without its head."""
    return record_of(Offer).json_schema()


def parse_offer(content: bytes, name: str, folder: str = "") -> Offer:
    """Return the offer in a file's bytes, its paths relative to `folder`.

    Raises ConfigError with every problem, each at `name:line:column`.
    """
    root, values = declared_values(record_of(Offer), content, name, folder)
    offer: Offer = record_of(Offer).build(values, file=name, origin=Origins(root))
    problems = Problems()
    problems.extend(_own_problems(offer))
    problems.raise_any()
    node = _provisioned(offer.power)
    return offer if node is None else replace(offer, power=replace(offer.power, node=node))


def read_offer(path: Path, tender: Tender | None = None) -> Offer:
    """Read an offer, offer.yaml, for a tender. Raises ConfigError with every problem in it, or for not fitting the tender."""
    offer = parse_offer(read_file(path, hint="check the path"), str(path), str(path.absolute().parent))
    if tender is not None and (problems := offer_problems(offer, tender)):
        raise ConfigError(problems)
    return offer


def _provisioned(power: OfferPower) -> UncertainValue | None:
    """Return the power of a node by its parts or its supplies. None where it is given by neither."""
    if power.supplies:
        return design_power([(each.needed or each.count, each.power) for each in power.supplies])
    if power.parts and power.cooling is not None:
        return provisioned_power([(part.count, part.power) for part in power.parts], power.cooling)
    return None


def _own_problems(offer: Offer) -> Iterator[Problem]:
    """Yield the problems of an offer that do not depend on the tender."""
    problem = offer.origin.problem
    yield from currency_problems(_prices(offer), offer.origin, "", "", "")
    yield from _power_problems(offer)
    for index, phase in enumerate(offer.phases):
        if phase.nodes > offer.nodes:
            what = f"{phase.nodes} nodes, more than the {offer.nodes} that are offered"
            yield problem(f"phases.{index}.nodes", what)
    if offer.phases and (most := max(phase.nodes for phase in offer.phases)) < offer.nodes:
        what = f"come to {most} nodes, and {offer.nodes} are offered"
        yield problem("phases", what, "say in which month all of them are installed")
    for name, bench in offer.benchmarks.items():
        path = f"benchmarks.{name}"
        if not bench.runs and bench.value is None:
            yield problem(path, "has neither a run nor a value", "name the run that measured it")
        elif bench.runs and bench.value is not None:
            yield problem(f"{path}.value", "has a run and a value", "leave out the run or the value")
        if not bench.is_measured and len(bench.runs) < 2:
            what = f"is projected, from {len(bench.runs)} measured count{'s' if not bench.runs else ''}"
            place = f"{path}.run" if bench.runs else path
            yield problem(place, what, "name runs on at least two counts of nodes")
        if not bench.is_measured and bench.nodes is None:
            yield problem(path, "is projected, and does not say to how many nodes", "give it 'nodes'")
        if bench.nodes is not None and bench.nodes > offer.nodes:
            yield problem(f"{path}.nodes", f"{bench.nodes}, more than the {offer.nodes} nodes that are offered")


def _power_problems(offer: Offer) -> Iterator[Problem]:
    problem, power = offer.origin.problem, offer.power
    ways = [name for name in ("node", "parts", "supplies") if getattr(power, name)]
    for other in ways[1:]:
        yield problem(f"power.{other}", f"is given, and {ways[0]!r} too", "keep only one way")
    if power.cooling is not None and not power.parts:
        yield problem("power.cooling", "goes with 'parts'")
    if power.parts and power.cooling is None:
        yield problem("power.parts", "needs 'cooling: liquid' or 'cooling: air'")
    for index, supply in enumerate(power.supplies):
        if supply.needed is not None and supply.needed > supply.count:
            yield problem(f"power.supplies.{index}.needed", f"{supply.needed}, and there are {supply.count}")
    if (power.parts or power.supplies) and power.level != "provisioned":
        what = f"{'parts' if power.parts else 'supplies'} are provisioned, not {power.level}"
        yield problem("power.level", what, "give the 'node' that was measured instead")


def _prices(offer: Offer) -> Mapping[str, UncertainValue | None]:
    return {"price.node": offer.price.node, "price.fixed": offer.price.fixed}


def offer_problems(offer: Offer, tender: Tender) -> tuple[Problem, ...]:
    """Return why an offer does not fit a tender: other benchmarks or tiers, another currency, something required is missing."""
    return tuple(_unfit_keys(offer, tender))


def _unfit_keys(offer: Offer, tender: Tender) -> Iterator[Problem]:
    problem = offer.origin.problem
    asked_for = f"asked for: {', '.join(tender.benchmarks)}"
    if offer.tender and tender.title and offer.tender != tender.title:
        yield problem("tender", f"answers the tender {offer.tender!r}, and {tender.file} is {tender.title!r}")
    if offer.benchmarks and not offer.benchmarks.keys() & tender.benchmarks.keys():
        what = f"is an offer for another suite: {tender.file} has none of its benchmarks"
        yield problem("benchmarks", what, asked_for)
        return
    for name, bench in offer.benchmarks.items():
        path = f"benchmarks.{name}"
        wanted = tender.benchmarks.get(name)
        if wanted is None:
            yield problem(path, f"is not in {tender.file}", did_you_mean(name, tender.benchmarks) or asked_for)
        elif bench.tier not in wanted.tiers:
            allowed = f"{tender.origin.where(f'{path}.tiers')} allows {', '.join(wanted.tiers)}"
            yield problem(f"{path}.tier", f"is {bench.tier}", allowed)
    for name, wanted in tender.benchmarks.items():
        if wanted.is_required and name not in offer.benchmarks:
            what = f"the benchmark {name!r} is missing, {tender.origin.where(f'benchmarks.{name}')} requires it"
            yield Problem(offer.origin.where("benchmarks") or offer.file, "benchmarks", what)
    months, years = math.fsum(phase.months for phase in offer.phases), tender.terms.years
    if years is not None and months > 12 * years.value:
        what = f"last {months:g} months, and {tender.origin.where('terms.years')} asks for {12 * years.value:g}"
        yield problem("phases", what, "end the last phase with the years of the tender")
    currency = tender_currency(tender)
    if currency:
        yield from currency_problems(_prices(offer), offer.origin, currency, "the tender", tender.file)
