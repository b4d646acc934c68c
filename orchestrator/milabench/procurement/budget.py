"""Budget questions: how many nodes of a system match another, fit a budget or fit a power limit, and which inputs decide.

Nodes are whole: the number that fits a limit is rounded down, the number that matches a system is rounded up. Scores,
money and power are computed again from the whole nodes. Only scores that count nodes can be asked (ssi, ssni, ssp,
throughput): they grow in proportion to N.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal

from milabench.analysis.intervals import Interval
from milabench.analysis.json_codec import NOT_WRITTEN, JsonKey
from milabench.errors import ConfigError, Problem, UsageError
from milabench.procurement.costs import YEAR_HOURS, carbon_intensity, lifetime_cost
from milabench.procurement.scores import METRICS, MachineSize
from milabench.procurement.tender import Tender, Terms
from milabench.procurement.tender_scores import ScoredBid, TenderScores
from milabench.procurement.uncertainty import (
    Mean,
    UncertainValue,
    constant,
    product,
    propagate,
    same_units,
    sum_of,
    weighted_mean,
)

Question = Literal["match", "spend", "power"]
_Result = Callable[[Mapping[str, float]], float]

# A weight is an opinion: it is varied by half to either side.
_WEIGHT_FACTOR: Final = 1.5
_ONE: Final = constant(1.0)
# A quotient that is whole but for rounding is whole.
_ROUNDING: Final = 1e-9
_MOST_NODES: Final = 10**9  # the upper bound of what two launches far apart say may be infinite


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSystem:
    """A system as a question needs it: `score` at `nodes`, the terms of its mean with their weights, the needs of a node.

    `node_price` and `fixed_price` are in the currency of their units, `node_kw` is the power of a node at work, known as
    `power_level` says. `least_nodes` are those that its largest benchmark runs on.
    """

    name: str
    nodes: float
    score: UncertainValue
    metric: str
    mean: Mean
    machine: MachineSize
    terms: Mapping[str, tuple[UncertainValue, float]] = field(default_factory=dict)
    node_price: UncertainValue | None = None
    fixed_price: UncertainValue | None = None
    node_kw: UncertainValue | None = None
    power_level: str = ""
    least_nodes: float = 1.0

    def score_at(self, nodes: float) -> UncertainValue:
        """Return its score with this number of nodes."""
        return product([(self.score, 1)], nodes / self.nodes, self.score.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariedInput:
    """An input of an answer, the range in which it was varied, and its source: as stated, as in the score, or as assumed.

    `swing` are the results at both ends of the range, all other inputs at their value.
    """

    name: str
    value: float
    units: str = ""
    range: Interval
    basis: Literal["stated", "scored", "assumed"] = "stated"
    swing: Interval = (0.0, 0.0)

    @property
    def width(self) -> float:
        """How far the results are apart."""
        return abs(self.swing[1] - self.swing[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetAnswer:
    """The answer of a system to a question: whole `nodes`, `bounds` at 95 % (None where not known), and their totals.

    `quotient` is the number before it was made whole. `cost` is the cost of the nodes over their years, `power_kw` their power
    at work, `energy_kwh` and `carbon_kg` are of a year with PUE. `result` names the quantity of swings: the nodes that
    match, or the score that a limit allows, neither of them rounded. `why_not` says why the nodes have no score.
    """

    question: Question
    system: str
    asked: str
    nodes: int
    bounds: tuple[int, int] | None
    power_level: str = ""
    why_not: Annotated[str, JsonKey(followed_by=("sentence",))] = ""
    quotient: UncertainValue
    score: UncertainValue | None = None
    ratio: UncertainValue | None = None
    cost: UncertainValue | None = None
    power_kw: UncertainValue | None = None
    energy_kwh: UncertainValue | None = None
    carbon_kg: Annotated[UncertainValue | None, JsonKey(followed_by=("sensitivity",))] = None
    result: Annotated[str, NOT_WRITTEN] = ""
    swings: Annotated[tuple[VariedInput, ...], NOT_WRITTEN] = ()

    @property
    def sentence(self) -> str:
        """The answer in a sentence that may be quoted."""
        bounds = "" if self.bounds is None else f" ({self.bounds[0]} to {self.bounds[1]} at 95 %)"
        bounds = bounds if self.bounds != (self.nodes, self.nodes) else ""
        what = {
            "match": f"{self.nodes} nodes of {self.system} match {self.asked}",
            "spend": f"{self.asked} pays for {self.nodes} nodes of {self.system}",
            "power": f"{self.nodes} nodes of {self.system} fit in {self.asked}",
        }[self.question]
        if self.score is None:
            return f"{what}{bounds}: no score, {self.why_not}"
        return f"{what}{bounds}, with a score of {self.score.value:.4g}"

    @property
    def sensitivity(self) -> Mapping[str, object]:
        """How it changes with its inputs, for programs."""
        return {"result": self.result, "inputs": self.swings}


def _rules(broken: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"system": system, "rule": rule} for system, rule in broken]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetAnswers:
    """All answers, by the metric of the scores. `notes` say which questions had no answer for a system, and why.

    `broken` are the rules of the metric that a system breaks, with its name: however many nodes it has, it is not admissible.
    Its fields are the JSON of `budget --json`.
    """

    tender: Annotated[Tender, NOT_WRITTEN]
    metric: str
    answers: tuple[BudgetAnswer, ...]
    notes: Annotated[tuple[str, ...], JsonKey("not_answered")] = ()
    broken: Annotated[tuple[tuple[str, str], ...], JsonKey("breaches", write=_rules)] = ()


def budget_system(scores: TenderScores, entry: ScoredBid) -> BudgetSystem:
    """Return a scored bid as a question needs it. Raises ConfigError where it has no score, or its score counts no nodes."""
    name = entry.bid.name
    if "machine.nodes" not in METRICS[scores.metric].needs:
        known = ", ".join(metric for metric, each in METRICS.items() if "machine.nodes" in each.needs)
        what = f"{scores.metric} does not grow with the nodes of a system"
        raise ConfigError(Problem("", "metric", what, f"choose {known} with --metric"))
    if entry.score is None or entry.machine.nodes is None:
        raise ConfigError(Problem("", name, f"has no score: {entry.why_not or 'how many nodes it has is not known'}"))
    offer = entry.bid.offer
    weighted = METRICS[scores.metric].is_weighted
    return BudgetSystem(
        name=name,
        nodes=entry.machine.nodes,
        score=entry.score.value,
        metric=scores.metric,
        mean=scores.mean,
        machine=entry.machine,
        terms={
            term.name: (term.term, scores.tender.benchmarks[term.name].weight if weighted else 1.0)
            for term in entry.score.terms
        },
        node_price=None if offer is None else offer.price.node,
        fixed_price=None if offer is None else offer.price.fixed,
        node_kw=None if offer is None else offer.power.node,
        power_level="" if offer is None else offer.power.level,
        least_nodes=max((row.nodes or 1.0 for row in entry.benchmarks if row.term is not None), default=1.0),
    )


def matching_nodes(wanted: BudgetSystem, system: BudgetSystem, terms: Terms, *, vary: float = 0.1) -> BudgetAnswer:
    """Return how many nodes of a system reach the score of another, rounded up.

    `vary` is the share by which weights and unstated prices are varied, to find the inputs that decide the answer.
    """
    quotient = product([(wanted.score, 1), (system.score, -1)], system.nodes, "nodes")
    asked = f"the {wanted.score.value:.4g} of {wanted.nodes:g} nodes of {wanted.name}"
    answer = _answer("match", system, terms, asked, quotient)
    if answer.score is not None:
        answer = replace(answer, ratio=product([(answer.score, 1), (wanted.score, -1)]))

    def nodes(names: Mapping[str, float]) -> float:
        return _per_node(wanted, names) * wanted.nodes / _per_node(system, names)

    return _with_sensitivity(answer, "nodes that match", nodes, _score_inputs([wanted, system], vary))


def nodes_for_money(budget: UncertainValue, system: BudgetSystem, terms: Terms, *, vary: float = 0.1) -> BudgetAnswer:
    """Return how many nodes money buys and keeps running for the years of the terms, as K-COST-4 counts them.

    Raises ConfigError where the price of a node is not known, for two currencies, and where nothing is left for nodes.
    """
    node = _lifetime_of_node(system, terms)
    inputs = {"budget": budget, "node": node}
    if system.fixed_price is not None:
        same_units([budget, system.fixed_price], "budget")
        if system.fixed_price.value >= budget.value:
            what = f"its fixed price of {_money(system.fixed_price)} leaves no part of {_money(budget)} for nodes"
            raise ConfigError(Problem("", system.name, what))
        inputs["fixed"] = system.fixed_price
    same_units([budget, node], "budget")
    quotient = propagate(lambda names: (names["budget"] - names.get("fixed", 0.0)) / names["node"], inputs, "nodes")
    years = terms.years.value if terms.years is not None and _has_energy(system, terms) else 0.0
    asked = f"{_money(budget)} over {years:g} years" if years else f"{_money(budget)} to buy"
    answer = _answer("spend", system, terms, asked, quotient)
    stated = {
        "budget": budget if budget.deviations else None,
        "price of a node": system.node_price,
        "fixed price": system.fixed_price,
        **_energy_inputs(system, terms),
        "years": terms.years if years and terms.years is not None and terms.years.deviations else None,
    }

    def score(names: Mapping[str, float]) -> float:
        left = names.get("budget", budget.value) - names.get("fixed price", 0.0)
        energy = math.prod([names.get(name, 1.0) for name in _ENERGY]) * YEAR_HOURS if years else 0.0
        lasting = names.get("years", years)
        each = names["price of a node"] * (1 + lasting * terms.upkeep) + lasting * energy
        return max(0.0, left) / each * _per_node(system, names)

    return _with_sensitivity(
        answer, "score by budget", score, [*_stated_inputs(stated, vary), *_score_inputs([system], vary)]
    )


def nodes_for_power(limit: UncertainValue, system: BudgetSystem, terms: Terms, *, vary: float = 0.1) -> BudgetAnswer:
    """Return how many nodes a power allows, without the building's. Raises ConfigError where the power of a node is not known."""
    if system.node_kw is None:
        hint = "give its offer power: {node: 10 kW}"
        raise ConfigError(Problem("", system.name, "the power of a node is not known", hint))
    quotient = product([(limit, 1), (system.node_kw, -1)], 1.0, "nodes")
    answer = _answer("power", system, terms, f"{limit.value:g} kW", quotient)
    stated = {"limit of power": limit if limit.deviations else None, "power of a node": system.node_kw}

    def score(names: Mapping[str, float]) -> float:
        return names.get("limit of power", limit.value) / names["power of a node"] * _per_node(system, names)

    return _with_sensitivity(
        answer, "score by power", score, [*_stated_inputs(stated, vary), *_score_inputs([system], vary)]
    )


def _answer(
    question: Question, system: BudgetSystem, terms: Terms, asked: str, quotient: UncertainValue
) -> BudgetAnswer:
    """Return the totals of the whole nodes."""
    rounded = _up if question == "match" else _down
    nodes, interval = rounded(quotient.value), quotient.interval()
    answer = BudgetAnswer(
        question=question,
        system=system.name,
        asked=asked,
        nodes=nodes,
        quotient=quotient,
        bounds=None if interval is None else (rounded(interval[0]), rounded(interval[1])),
        power_level=system.power_level,
    )
    if not nodes:
        return replace(answer, why_not="not even one node")
    if nodes < system.least_nodes:
        answer = replace(answer, why_not=f"a benchmark runs on {system.least_nodes:g} nodes")
    else:
        answer = replace(answer, score=system.score_at(nodes))
    if system.node_price is not None:
        node = product([(_lifetime_of_node(system, terms), 1)], nodes, system.node_price.units)
        fixed = system.fixed_price
        answer = replace(answer, cost=node if fixed is None else sum_of([node, fixed]))
    if system.node_kw is not None:
        power = product([(system.node_kw, 1)], nodes, "kW")
        used = product([(power, 1), (terms.pue or _ONE, 1), (terms.utilization or _ONE, 1)], YEAR_HOURS, "kWh")
        answer = replace(answer, power_kw=power, energy_kwh=used)
        if terms.grid_carbon is not None:
            made = None
            if terms.embodied_carbon is not None and terms.years is not None:
                made = product([(terms.embodied_carbon, 1), (terms.years, -1)], 1000 * nodes, "g")
            carbon = carbon_intensity(used, terms.grid_carbon, made)
            answer = replace(answer, carbon_kg=product([(carbon, 1)], 1e-3, "kg"))
    return answer


_ENERGY: Final = ("power of a node", "PUE", "share of the year in use", "price of energy")


def _has_energy(system: BudgetSystem, terms: Terms) -> bool:
    return system.node_kw is not None and terms.electricity is not None and terms.years is not None


def _energy_inputs(system: BudgetSystem, terms: Terms) -> dict[str, UncertainValue | None]:
    if not _has_energy(system, terms):
        return {}
    return dict(zip(_ENERGY, (system.node_kw, terms.pue, terms.utilization, terms.electricity), strict=True))


def _lifetime_of_node(system: BudgetSystem, terms: Terms) -> UncertainValue:
    """Return the cost of a node: with energy and upkeep of all years, or the price alone where the energy is not known."""
    price = system.node_price
    if price is None:
        hint = "give its offer price: {node: 300 k EUR}"
        raise ConfigError(Problem("", system.name, "the price of a node is not known", hint))
    owned = None if system.node_kw is None else terms.ownership(price, system.node_kw)
    return price if owned is None else lifetime_cost(owned)


def _money(amount: UncertainValue) -> str:
    return f"{amount.value:,.0f} {amount.units}"


def _down(number: float) -> int:
    return math.floor(min(number * (1 + _ROUNDING), _MOST_NODES))


def _up(number: float) -> int:
    return math.ceil(min(number * (1 - _ROUNDING), _MOST_NODES))


# --- what an answer hangs on ------------------------------------------------------------------------------------------


def _per_node(system: BudgetSystem, names: Mapping[str, float]) -> float:
    """Return a node's contribution to the score, with the figures and weights in `names` times these factors."""
    factors = [names.get(_figure_name(bench, system), 1.0) for bench in system.terms]
    values = [constant(term.value * factor) for (term, _), factor in zip(system.terms.values(), factors, strict=True)]
    weights = [weight * names.get(f"weight of {bench}", 1.0) for bench, (_, weight) in system.terms.items()]
    mean = weighted_mean(system.mean, values, weights).value
    return mean * METRICS[system.metric].scale(system.machine, math.fsum(weights)) / system.nodes


def _figure_name(bench: str, system: BudgetSystem) -> str:
    return f"{bench} on {system.name}"


def _stated_inputs(stated: Mapping[str, UncertainValue | None], vary: float) -> list[VariedInput]:
    """Return the ranges of amounts: as stated, else by the share that was assumed."""
    ranges = []
    for name, amount in stated.items():
        if amount is None:
            continue
        interval = amount.interval() if amount.deviations else None
        low, high = interval or (amount.value / (1 + vary), amount.value * (1 + vary))
        if name == "PUE":
            low = max(1.0, low)
        elif name == "share of the year in use":
            high = min(1.0, high)
        basis: Literal["stated", "assumed"] = "assumed" if interval is None else "stated"
        ranges.append(VariedInput(name=name, value=amount.value, units=amount.units, range=(low, high), basis=basis))
    return ranges


def _score_inputs(systems: Sequence[BudgetSystem], vary: float) -> list[VariedInput]:
    """Return the ranges of figures, by the intervals of their repeats, and of weights, as factors of their values."""
    factor = VariedInput(name="", value=1.0, units="x", range=(1 / _WEIGHT_FACTOR, _WEIGHT_FACTOR), basis="assumed")
    ranges = []
    for system in systems:
        for bench, (term, _) in system.terms.items():
            interval = term.interval() if term.deviations else None
            if interval is not None:
                within = interval[0] / term.value, interval[1] / term.value
                ranges.append(replace(factor, name=_figure_name(bench, system), range=within, basis="scored"))
    is_weighted = METRICS[systems[0].metric].is_weighted and len(systems[0].terms) > 1
    if vary and is_weighted:
        weights = [bench for bench, (_, weight) in systems[0].terms.items() if weight]
        ranges += [replace(factor, name=f"weight of {bench}") for bench in weights]
    return ranges


def _with_sensitivity(
    answer: BudgetAnswer, result: str, function: _Result, inputs: Sequence[VariedInput]
) -> BudgetAnswer:
    """Return the answer with its sensitivity, which is empty where no node is left."""
    if not answer.nodes:
        return answer
    return replace(answer, result=result, swings=one_at_a_time(function, inputs))


def one_at_a_time(result: _Result, inputs: Sequence[VariedInput]) -> tuple[VariedInput, ...]:
    """Return each input that can be off with its swing, the widest first. Raises UsageError where the result is not finite."""
    centre = {given.name: given.value for given in inputs}

    def at(given: VariedInput, end: float) -> float:
        return _finite(result, {**centre, given.name: end})

    varied = [given for given in inputs if given.range[0] < given.range[1]]
    swings = [replace(given, swing=(at(given, given.range[0]), at(given, given.range[1]))) for given in varied]
    return tuple(sorted(swings, key=lambda swing: -swing.width))


def _finite(result: _Result, values: Mapping[str, float]) -> float:
    value = result(values)
    if not math.isfinite(value):
        given = ", ".join(f"{name}={each:g}" for name, each in values.items())
        raise UsageError(f"the result is {value} at {given}: narrow the inputs so that it is a number everywhere")
    return value
