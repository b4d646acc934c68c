"""Money, energy and carbon of work, each with the uncertainty of its inputs.

Carbon: Software Carbon Intensity, github Green-Software-Foundation/sci 29cab98, specification 1.1.0. Provisioned power: github
mlcommons/endpoints_policies 00135a0 (a draft).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from milabench.procurement.uncertainty import UncertainValue, constant, product, propagate, same_units, sum_of

# As tenders and SCI count them; `HOURS_PER_YEAR` of a comparison's job mix has the quarter of a day too.
YEAR_HOURS: Final = 8760.0
_ONE: Final = constant(1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The remaining costs of a delivery in phases, as shares: of energy (`in_use`), of the price behind upkeep (`kept`), and of
    the price, whose parts are paid as they arrive, in their value at the beginning (`paid`).
    """

    in_use: float = 1.0
    kept: float = 1.0
    paid: float = 1.0


AT_ONCE: Final = Delivery()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipCosts:
    """Costs of owning a system or a node. `price` is in the currency of its units, `electricity` in the same for a kWh.

    `power_kw` is the IT power at work, `pue` the building's power for each of its watts, `energy_use` the share of the year at
    that power. `interest` and `upkeep` (of the price) are shares a year.
    """

    price: UncertainValue
    years: UncertainValue
    power_kw: UncertainValue
    electricity: UncertainValue
    pue: UncertainValue = _ONE
    energy_use: UncertainValue = _ONE
    interest: float = 0.0
    upkeep: float = 0.0
    delivery: Delivery = AT_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class YearlyCost:
    """Costs of a year, on average over all years, in the currency of the price. Without upkeep that is None."""

    capital: UncertainValue
    energy: UncertainValue
    upkeep: UncertainValue | None
    total: UncertainValue


def capital_recovery_factor(interest: float, years: float) -> float:
    """Return the share of a price that a year pays: r (1+r)^n / ((1+r)^n - 1), 1/n without interest."""
    return interest / -math.expm1(-years * math.log1p(interest)) if interest else 1 / years


def yearly_cost(costs: OwnershipCosts) -> YearlyCost:
    """Return the parts of a year's cost and their sum. Raises ConfigError for two currencies."""
    currency = same_units([costs.price, costs.electricity], "prices")
    inputs = [costs.power_kw, costs.pue, costs.energy_use, costs.electricity]
    energy = product([(number, 1) for number in inputs], YEAR_HOURS * costs.delivery.in_use, currency)
    kept = costs.upkeep * costs.delivery.kept

    def capital(names: Mapping[str, float]) -> float:
        return names["price"] * capital_recovery_factor(costs.interest, names["years"]) * costs.delivery.paid

    return YearlyCost(
        capital=propagate(capital, {"price": costs.price, "years": costs.years}, currency),
        energy=energy,
        upkeep=product([(costs.price, 1)], kept, currency) if kept else None,
        # The price is in two parts of it, so that it is an input and the energy another.
        total=propagate(
            lambda names: capital(names) + names["price"] * kept + names["energy"],
            {"price": costs.price, "years": costs.years, "energy": energy},
            currency,
        ),
    )


def lifetime_cost(costs: OwnershipCosts) -> UncertainValue:
    """Return the price with the energy and the upkeep of all years, without interest: a node's part of a fixed budget."""
    energy, kept = yearly_cost(costs).energy, costs.upkeep * costs.delivery.kept
    return propagate(
        lambda names: names["price"] * (1 + names["years"] * kept) + names["years"] * names["energy"],
        {"price": costs.price, "years": costs.years, "energy": energy},
        energy.units,
    )


def of_items(
    yearly: UncertainValue, rate: UncertainValue, *, items: float = 1.0, used: UncertainValue = _ONE
) -> UncertainValue:
    """Return the share of a year's expenses for these items. The rate is in items/s, kept busy for the share `used`.

    Inputs shared by the year and the items cancel.
    """
    return product([(yearly, 1), (rate, -1), (used, -1)], items / (YEAR_HOURS * 3600), yearly.units)


Cooling = Literal["liquid", "air"]
# What is added to the parts of a rack for fans, pumps, conversion and the rest.
PROVISIONED_OVERHEAD: Final[Mapping[Cooling, float]] = MappingProxyType({"liquid": 0.30, "air": 0.50})


def provisioned_power(parts: Sequence[tuple[int, UncertainValue]], cooling: Cooling) -> UncertainValue:
    """Return the power that (count, maximum power) of processors, accelerators and scale-up switches is provisioned with."""
    whole = design_power(parts)
    return product([(whole, 1)], 1 + PROVISIONED_OVERHEAD[cooling], whole.units)


def design_power(supplies: Sequence[tuple[int, UncertainValue]]) -> UncertainValue:
    """Return the power of (supplies needed, rated power): spares of a redundant group are not counted."""
    return sum_of([product([(power, 1)], needed, power.units) for needed, power in supplies])


def embodied_carbon(
    whole_g: UncertainValue, *, reserved_h: float, lifetime_h: float, share: float = 1.0
) -> UncertainValue:
    """Return M in gCO2eq: the emissions of its production, for the reserved part of its life and its reserved `share`."""
    return product([(whole_g, 1)], reserved_h / lifetime_h * share, "g")


def carbon_intensity(
    energy_kwh: UncertainValue,
    grid_g_per_kwh: UncertainValue,
    embodied_g: UncertainValue | None = None,
    functional_units: UncertainValue = _ONE,
) -> UncertainValue:
    """Return SCI = (E I + M) / R in gCO2eq for each functional unit. E includes the PUE, I is of the place, without offsets."""
    inputs = {"energy": energy_kwh, "grid": grid_g_per_kwh, "units": functional_units}
    if embodied_g is not None:
        inputs["embodied"] = embodied_g
    return propagate(
        lambda names: (names["energy"] * names["grid"] + names.get("embodied", 0.0)) / names["units"], inputs, "g"
    )


def whole_machine_power(readings: Sequence[float], nodes: int, units: str = "W") -> UncertainValue:
    """Return the power of all nodes from the power of a random sample of two or more, corrected for a finite machine."""
    count = len(readings)
    centre = math.fsum(readings) / count
    variance = math.fsum((reading - centre) ** 2 for reading in readings) / (count - 1)
    error = nodes * math.sqrt(variance / count * (1 - count / nodes))
    return UncertainValue.of_error(nodes * centre, error, units, freedom=count - 1)
