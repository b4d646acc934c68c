"""Where every number of a tender and of the scores by it comes from: its value, its uncertainty, its formula, its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from milabench.analysis.summary_model import Expense
from milabench.config.problems import did_you_mean
from milabench.errors import UsageError, with_remedy
from milabench.procurement.measured import SourcedFigure
from milabench.procurement.offer import Offer
from milabench.procurement.scores import METRICS
from milabench.procurement.tender import Tender
from milabench.procurement.tender_scores import ScoredBenchmark, ScoredBid, TenderScores
from milabench.procurement.uncertainty import UncertainValue, constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """A number by its dotted key. `where` are places in files, or the records of a run. `formula` is its computation."""

    key: str
    value: UncertainValue | str
    formula: str = ""
    where: tuple[str, ...] = ()


def tender_provenance(tender: Tender) -> Iterator[Provenance]:
    """Yield every number of a tender, with its place. A number that is not in the file is the built-in default."""
    yield Provenance(
        key="metric",
        value=tender.metric,
        formula=f"{METRICS[tender.metric].formula}; {METRICS[tender.metric].source}",
        where=(_place(tender, "metric"),),
    )
    yield from _numbers(tender, "reference", tender.reference)
    for name, bench in tender.benchmarks.items():
        yield from _numbers(tender, f"benchmarks.{name}", bench)
    yield from _numbers(tender, "terms", tender.terms)
    for limit, value in {"budget": tender.limits.budget, "power": tender.limits.power, **tender.limits.scores}.items():
        yield from _known(f"limits.{limit}", value, _place(tender, f"limits.{limit}"))


def _numbers(tender: Tender, path: str, value: Any) -> Iterator[Provenance]:
    """Yield the numbers and expressions of a part of the tender."""
    for declared in fields(value):
        part, key = getattr(value, declared.name), f"{path}.{declared.name}"
        if is_dataclass(part) and not isinstance(part, UncertainValue):
            yield from _numbers(tender, key, part)
        elif isinstance(part, UncertainValue):
            yield from _known(key, part, _place(tender, key), str(tender.origin.data(key) or ""))
        elif isinstance(part, int | float) and not isinstance(part, bool):
            # Zero is a number that no UncertainValue can be.
            number = constant(part) if part > 0 else f"{part:g}"
            yield Provenance(key=key, value=number, where=(_place(tender, key),))
        elif declared.name == "figure_of_merit":
            yield Provenance(key=key, value=part or "rate", where=(_place(tender, key),))


def _place(tender: Tender, key: str) -> str:
    return tender.origin.where(key) if key in tender.origin else "built-in default"


def scores_provenance(scores: TenderScores) -> Iterator[Provenance]:
    """Yield every number of every score, from the figures to the score itself."""
    for entry in scores.bids:
        yield from _of_bid(scores, entry)


def _of_bid(scores: TenderScores, entry: ScoredBid) -> Iterator[Provenance]:
    name, tender = entry.bid.name, scores.tender
    offer = entry.bid.offer
    yield from _known(f"{name}.N", entry.machine.nodes, "the run" if offer is None else offer.origin.where("nodes"))
    place = "the reference run" if tender.reference.nodes is None else tender.origin.where("reference.nodes")
    yield from _known(f"{name}.N_ref", entry.machine.reference_nodes, place)
    if offer is not None:
        yield from _known(f"{name}.price.node", offer.price.node, offer.origin.where("price.node"))
        yield from _known(f"{name}.price.fixed", offer.price.fixed, offer.origin.where("price.fixed"))
        source, formula = _power_given(offer)
        yield from _known(f"{name}.power.node", offer.power.node, offer.origin.where(source), formula)
    for row in entry.benchmarks:
        yield from _of_benchmark(scores, entry, row)
        yield from _of_work(scores, entry, row.bench)
    if entry.score is not None:
        metric = METRICS[scores.metric]
        yield from _known(f"{name}.{scores.metric}", entry.score.value, formula=f"{metric.formula}; {metric.source}")


def _of_benchmark(scores: TenderScores, entry: ScoredBid, row: ScoredBenchmark) -> Iterator[Provenance]:
    path = f"{entry.bid.name}.{row.bench}"
    if row.why_not:
        yield Provenance(key=path, value=f"not in the score: {row.why_not}")
    for what, figure in (("figure", row.figure), ("reference", row.reference)):
        if figure is not None:
            yield from _of_figure(f"{path}.{what}", figure)
    term = row.term
    if term is None:
        return
    wanted, origin = row.wanted, scores.tender.origin
    is_ssi = term.utilization is not None
    place = _place(scores.tender, f"benchmarks.{row.bench}.capability")
    yield from _known(f"{path}.c", wanted.capability if is_ssi else None, place)
    offer, key = entry.bid.offer, f"benchmarks.{row.bench}.nodes"
    yield from _known(f"{path}.n", row.nodes, offer.origin.where(key) if offer and key in offer.origin else "the run")
    key = f"benchmarks.{row.bench}.reference.nodes"
    place = origin.where(key) if key in origin else "the reference run"
    yield from _known(f"{path}.n_ref", row.reference_nodes, place)
    yield from _known(f"{path}.U", term.utilization, formula="(n_ref / n) (N / N_ref)")
    is_lower = row.figure is not None and row.figure.direction == "lower"
    formula = "reference / figure" if is_lower else "figure / reference"
    yield from _known(f"{path}.S", term.speedup, formula=formula)
    place = _place(scores.tender, f"benchmarks.{row.bench}.weight")
    weight = constant(term.weight) if term.weight > 0 else "0"
    formula = "weight / sum of weights" if METRICS[scores.metric].is_by_share else "weight"
    yield Provenance(key=f"{path}.w", value=weight, formula=formula, where=(place,))
    yield Provenance(key=f"{path}.term", value=term.term, formula="c U S" if is_ssi else "")


def _known(key: str, number: UncertainValue | float | None, place: str = "", formula: str = "") -> Iterator[Provenance]:
    """Yield a number, where there is one."""
    if number is not None:
        value = number if isinstance(number, UncertainValue) else constant(number)
        yield Provenance(key=key, value=value, formula=formula, where=(place,) if place else ())


def _power_given(offer: Offer) -> tuple[str, str]:
    """Return the key that the power of a node comes from, and how it is computed of that."""
    if offer.power.parts:
        return "power.parts", "sum of the parts, and cooling"
    if offer.power.supplies:
        return "power.supplies", "sum of the supplies that are needed"
    return "power.node", ""


# What a year of the nodes that ran takes, by quantity and by each of its parts.
_PARTS: Final[Mapping[str, str]] = {
    "power at work": "power of the nodes * utilization * 8760 h",
    "PUE": "PUE",
    "price": "price * CRF(interest, years)",
    "upkeep": "price of the nodes * upkeep",
    "making the nodes": "embodied_carbon * nodes / years",
    "the whole launch": "readings from its beginning to its end",
}
_TIMES: Final[Mapping[str, str]] = {"energy": " * ", "cost": " + ", "carbon": " + "}
_OF_ENERGY: Final[Mapping[str, str]] = {"cost": "energy * electricity", "carbon": "energy * grid_carbon"}
_PER: Final[Mapping[str, str]] = {
    "year": "({}) for all {} nodes",
    "node year": "({}) for each node",
    "run": "({}) / items of that year, for the items of a launch",
}


def _of_work(scores: TenderScores, entry: ScoredBid, bench: str) -> Iterator[Provenance]:
    """Yield the energy, the cost and the carbon of a benchmark's work."""
    system = entry.bid.measured(bench)
    for session in () if system is None else system.sessions:
        for expense in session.summary.expenses:
            if expense.bench != bench:
                continue
            of_year = _TIMES[expense.quantity].join(
                _OF_ENERGY.get(expense.quantity, part) if part == "energy" else _PARTS[part] for part in expense.parts
            )
            per = _PER.get(expense.per, "({}) / items of that year, for " + expense.per)
            is_whole = "the whole launch" in expense.parts
            yield Provenance(
                key=f"{entry.bid.name}.{bench}.{expense.quantity}.{expense.per}",
                value=_expense_value(expense),
                formula=of_year if is_whole else per.format(of_year, expense.nodes),
                where=(f"power: {expense.source}", *(() if is_whole else (f"terms of {scores.tender.file}",))),
            )


def _expense_value(expense: Expense) -> UncertainValue:
    if expense.ci95 is None:
        return UncertainValue(value=expense.value, units=expense.units, deviations=None)
    return UncertainValue.within(expense.value, max(0.0, expense.ci95[1] / expense.value - 1), expense.units)


def _of_figure(path: str, figure: SourcedFigure) -> Iterator[Provenance]:
    launches = "" if figure.launches is None else f", {figure.launches} launches"
    yield Provenance(key=path, value=figure.value, formula=f"{figure.formula}{launches}", where=figure.where)
    for name, value in figure.inputs.items():
        if name != figure.formula:
            yield Provenance(key=f"{path}.{name}", value=value, where=figure.where)


def select_keys(entries: Sequence[Provenance], keys: Sequence[str]) -> list[Provenance]:
    """Return the numbers below these dotted keys, all without a key. Raises UsageError for a key that no number has."""
    selected = []
    for key in keys:
        below = [entry for entry in entries if entry.key == key or entry.key.startswith(f"{key}.")]
        if not below:
            known = [entry.key for entry in entries]
            hint = (
                did_you_mean(key, known) or f"known: {', '.join(dict.fromkeys(name.split('.')[0] for name in known))}"
            )
            raise UsageError(with_remedy(f"no number {key!r} here", hint))
        selected += below
    return selected if keys else list(entries)
