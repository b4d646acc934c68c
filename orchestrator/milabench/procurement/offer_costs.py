"""Costs and power of a whole offer, on the terms of its tender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from milabench.analysis.acceptance_model import Verdict
from milabench.analysis.json_codec import JsonKey
from milabench.procurement.costs import Delivery, YearlyCost, lifetime_cost, yearly_cost
from milabench.procurement.offer import Offer
from milabench.procurement.tender import Limits, Tender
from milabench.procurement.uncertainty import UncertainValue, product, sum_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferCosts:
    """Price and power of all nodes, costs of a year and of all years. None for values that the terms or the offer lack.

    `nodes_in_use` and `nodes_paid` are the phases' shares of energy and upkeep, and of the price.
    """

    price: UncertainValue | None = None
    power_kw: UncertainValue | None = None
    yearly: YearlyCost | None = None
    lifetime: UncertainValue | None = None
    nodes_in_use: float = 1.0
    nodes_paid: float = 1.0

    @property
    def whole(self) -> UncertainValue | None:
        """Costs within the budget: of all years, where known, else the price."""
        return self.lifetime or self.price


NO_COSTS: Final = OfferCosts()
"""Of a run alone, which has no price and draws no declared power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    """An offer's whole cost or power against the tender's `most`, one-sided at 95 %. `offered` is None where it names none."""

    name: Annotated[Literal["budget", "power"], JsonKey("limit")]
    offered: UncertainValue | None
    most: UncertainValue
    decision: Annotated[Verdict, JsonKey("verdict")]


def offer_costs(offer: Offer, tender: Tender) -> OfferCosts:
    """Return the costs of an offer. The budget pays the price with energy and upkeep of all years, where they are known."""
    terms = tender.terms
    price = price_of(offer, offer.nodes)
    in_use, paid = nodes_by_phase(offer, None if terms.years is None else terms.years.value, terms.interest)
    power = offer.power.node and product([(offer.power.node, 1)], offer.nodes, "kW")
    owned = None
    electricity = terms.electricity
    # In two currencies it is no offer that fits the tender, and verifying it says so.
    is_priced = price is not None and electricity is not None and electricity.units == f"{price.units}/kWh"
    if is_priced and price and power:
        owned = terms.ownership(price, power, _delivery(offer, price, in_use, paid))
    return OfferCosts(
        price=price,
        power_kw=power,
        yearly=None if owned is None else yearly_cost(owned),
        lifetime=None if owned is None else lifetime_cost(owned),
        nodes_in_use=in_use,
        nodes_paid=paid,
    )


def price_of(offer: Offer, nodes: int) -> UncertainValue | None:
    """Return the price of these nodes of an offer, with their part of the fixed price. None where it has no price."""
    parts = [(offer.price.node, float(nodes)), (offer.price.fixed, nodes / offer.nodes)]
    priced = [product([(part, 1)], count, part.units) for part, count in parts if part is not None]
    return sum_of(priced) if priced else None


def nodes_by_phase(offer: Offer, years: float | None, interest: float) -> tuple[float, float]:
    """Return the share of all nodes that is there, over the years, and their cost at the beginning if paid on arrival.

    Nodes of a later phase are there from its month on, nodes of the last phase to the end of the years.
    """
    if not offer.phases or years is None:
        return 1.0, 1.0
    end, begin, arrived, there, paid = 12 * years, 0.0, 0, 0.0, 0.0
    for phase in offer.phases:
        until = end if phase is offer.phases[-1] else min(end, begin + phase.months)
        there += phase.nodes * max(0.0, until - begin)
        paid += max(0, phase.nodes - arrived) * (1 + interest) ** (-begin / 12)
        arrived = max(arrived, phase.nodes)
        begin += phase.months
    return there / (offer.nodes * end), paid / offer.nodes


def _delivery(offer: Offer, price: UncertainValue, in_use: float, paid: float) -> Delivery:
    """Return the costs with phases. Costs that do not depend on nodes are there from the first month on."""
    node = offer.price.node
    of_nodes = 0.0 if node is None else node.value * offer.nodes / price.value
    kept = 1.0 if node is None else in_use * kept_share(offer)
    return Delivery(in_use=in_use, kept=kept, paid=1 - of_nodes * (1 - paid))


def kept_share(offer: Offer) -> float:
    """Return the share of its price behind upkeep: the nodes' price, or the whole price where nodes have none."""
    node, fixed = offer.price.node, offer.price.fixed
    if node is None or fixed is None:
        return 1.0
    of_nodes = node.value * offer.nodes
    return of_nodes / (of_nodes + fixed.value)


def limit_checks(limits: Limits, costs: OfferCosts) -> Iterator[LimitCheck]:
    """Yield an offer's use of each limit of a tender."""
    if limits.budget is not None:
        yield _limit_check("budget", costs.whole, limits.budget)
    if limits.power is not None:
        yield _limit_check("power", costs.power_kw, limits.power)


def _limit_check(name: Literal["budget", "power"], offered: UncertainValue | None, most: UncertainValue) -> LimitCheck:
    if offered is None or offered.units != most.units:
        return LimitCheck(name=name, offered=None, most=most, decision="INCONCLUSIVE")
    decision = decide(product([(most, 1), (offered, -1)]), 1.0)
    return LimitCheck(name=name, offered=offered, most=most, decision=decision)


def decide(value: UncertainValue, least: float) -> Verdict:
    """Return whether a value reaches a limit, one-sided at 95 %. Undecided without a known uncertainty."""
    interval = value.interval(0.90)
    if interval is None:
        return "INCONCLUSIVE"
    return "PASS" if interval[0] >= least else "FAIL" if interval[1] < least else "INCONCLUSIVE"
