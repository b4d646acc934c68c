"""Money, energy and carbon against published and computed numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from milabench.analysis.intervals import t_quantile
from milabench.errors import ConfigError
from milabench.procurement.costs import (
    OwnershipCosts,
    capital_recovery_factor,
    carbon_intensity,
    embodied_carbon,
    lifetime_cost,
    of_items,
    provisioned_power,
    whole_machine_power,
    yearly_cost,
)
from milabench.procurement.uncertainty import UncertainValue, constant, product, sum_of


def close(value: Any, rel: float = 1e-12) -> Any:
    return pytest.approx(value, rel=rel)


def error_of(number: UncertainValue) -> float:
    assert number.log_estimate is not None
    return number.log_estimate.error


# Money


@pytest.mark.parametrize(
    ("hourly", "rate", "printed"),
    [(2.00, 40, 13.90), (2.00, 85, 6.54), (2.60, 140, 5.16), (2.00, 120, 4.63), (2.00, 400, 1.39)],
)
def test_k_cost_1_price_of_a_million_tokens(hourly: float, rate: float, printed: float) -> None:
    """Source: gmicloud.ai, pages of 2026-04-13 and 2026-05-28, "about", reproduced (13.89 is printed as 13.90)."""
    cost = of_items(constant(hourly * 8760, "$"), constant(rate, "tokens/s"), items=1e6)
    assert cost.value == close(hourly / (rate * 3600) * 1e6)
    assert abs(cost.value - printed) < 0.012
    assert cost.units == "$"


def test_k_cost_2_price_at_part_load() -> None:
    """Source: rahulkashyap.dev, llm-serving-economics lesson 03, reproduced."""
    year, rate = constant(1.29 * 8760), constant(2400)
    full, part = of_items(year, rate, items=1e6), of_items(year, rate, items=1e6, used=constant(0.7))
    assert (full.value, part.value) == (close(0.14930555555555558), close(0.21329365079365084))
    assert (round(full.value, 2), round(part.value, 2)) == (0.15, 0.21)


def node(use: float = 1.0) -> OwnershipCosts:
    return OwnershipCosts(
        price=constant(300000, "$"),
        years=constant(5),
        interest=0.05,
        upkeep=0.06,
        power_kw=constant(10.2, "kW"),
        pue=constant(1.3),
        electricity=constant(0.12, "$"),
        energy_use=constant(use),
    )


def test_k_cost_3_a_year_and_a_million_tokens() -> None:
    """Source: section 14 of the formulas, computed."""
    assert capital_recovery_factor(0.05, 5) == close(0.23097479812826793)
    assert yearly_cost(node(0.8)).energy.value == close(11151.1296)
    year = yearly_cost(node())
    assert year.energy == constant(year.energy.value, "$")
    assert year.energy.value == close(13938.912)
    assert year.upkeep is not None
    assert year.upkeep.value == close(18000)
    assert year.total.value == close(101231.35143848037)
    assert year.capital.value + year.energy.value + year.upkeep.value == close(year.total.value)
    rate = constant(20000, "tokens/s")
    assert 20000 * 0.8 * 8760 * 3600 == 504576000000
    assert of_items(year.total, rate, items=1e6, used=constant(0.8)).value == close(0.20062656852184876)
    joules = constant(10200 * 8760 * 3600, "J")
    assert of_items(joules, rate).value == close(0.51)
    kwh = of_items(constant(10.2 * 1.3 * 8760, "kWh"), rate, items=1e6)
    assert (kwh.value, kwh.units) == (close(0.18416666666666667), "kWh")


def test_k_cost_4_what_a_node_costs_over_its_years() -> None:
    """Source: section 14 of the formulas, computed; how many of them a budget buys is in test_budget.py."""
    assert lifetime_cost(node(0.8)).value == close(445755.648)


def test_without_interest_a_price_is_paid_in_equal_parts() -> None:
    assert capital_recovery_factor(0.0, 4) == 0.25
    assert capital_recovery_factor(1e-12, 4) == close(0.25, rel=1e-11)


def test_how_long_it_lasts_may_be_off_too() -> None:
    """Without interest a year pays price / years, and all years take years times energy and upkeep: their shares by hand."""
    years = UncertainValue.within(5.0, 0.25)  # four to six and a quarter
    costs = replace(node(), interest=0.0, years=years)
    sd = error_of(years)
    assert sd * 1.959963984540054 == close(math.log(1.25))
    year = yearly_cost(costs)
    assert error_of(year.capital) == close(sd, rel=1e-8)
    assert year.total.value == close(60000 + 18000 + 13938.912)
    assert error_of(year.total) == close(sd * 60000 / year.total.value, rel=1e-8)
    whole = lifetime_cost(costs)
    kept = 5 * (18000 + 13938.912)
    assert whole.value == close(300000 + kept)
    assert error_of(whole) == close(sd * kept / whole.value, rel=1e-8)


def test_the_price_is_one_source_of_capital_and_upkeep() -> None:
    """Both move together: 0.05 of their sum, and not the root of squares."""
    costs = OwnershipCosts(
        price=UncertainValue.of_error(100.0, 5.0),
        years=constant(5),
        upkeep=0.2,
        power_kw=constant(1e-12),
        electricity=constant(1e-12),
    )
    assert error_of(yearly_cost(costs).total) == close(0.05, rel=1e-9)
    assert error_of(lifetime_cost(costs)) == close(0.05, rel=1e-9)
    assert yearly_cost(costs).total.value == close(40.0)


def test_two_currencies_are_refused() -> None:
    costs = OwnershipCosts(
        price=constant(1, "EUR"), years=constant(1), power_kw=constant(1), electricity=constant(0.2, "CHF")
    )
    with pytest.raises(ConfigError, match="prices: units differ: 'CHF' and 'EUR'"):
        yearly_cost(costs)


# Power


@pytest.mark.parametrize(
    ("rmax", "power", "rpeak", "efficiency", "share"),
    [
        pytest.param(3133.420, 676445.479, 5143.757, 4.632, 60.917, id="K-PWR-1"),
        pytest.param(5238.000, 154952.640, 9634.775, 33.804, 54.366, id="K-PWR-2"),
    ],
)
def test_k_pwr_1_and_2_efficiency(rmax: float, power: float, rpeak: float, efficiency: float, share: float) -> None:
    """Source: EEHPCWG/PowerMeasurementMethodology ff1d705, data/example-rwth-claix-2023, reproduced."""
    measured = product([(constant(rmax * 1000, "GFLOPS"), 1), (constant(power, "W"), -1)], 1.0, "GFLOPS/W")
    assert (round(measured.value, 3), measured.units) == (efficiency, "GFLOPS/W")
    of_peak = product([(constant(rmax, "TFLOPS"), 1), (constant(rpeak, "TFLOPS"), -1)], 100)
    assert round(of_peak.value, 3) == share


SIXTEEN_NODES = [5.10, 5.22, 5.05, 5.31, 5.18, 5.12, 5.25, 5.09, 5.15, 5.20, 5.11, 5.28, 5.07, 5.19, 5.16, 5.13]


def test_k_pwr_4_the_whole_machine_from_an_eighth_of_it() -> None:
    """Source: sampling without replacement from a finite machine, computed."""
    power = whole_machine_power(SIXTEEN_NODES, 128, "kW")
    assert power.value == close(660.88)
    assert error_of(power) * power.value == close(2.255198439162283)
    half = t_quantile(0.975, 15) * error_of(power) * power.value
    assert (power.value - half, power.value + half) == close((656.0731583117005, 665.6868416882995))


def test_a_machine_measured_as_a_whole_has_no_sampling_error() -> None:
    power = whole_machine_power(SIXTEEN_NODES, 16)
    assert power.interval() == (power.value, power.value)


def test_k_end_4_provisioned_power() -> None:
    """Source: mlcommons/endpoints-submission-docs 0c220a5, system-power-json.md, reproduced."""
    parts = [(count, constant(watts, "W")) for count, watts in ((2, 350), (8, 700), (1, 3500))]
    power = provisioned_power(parts, "liquid")
    assert (power.value, power.units) == (close(12740), "W")
    rate = product([(constant(25000, "tokens/s"), 1), (power, -1)])
    assert 1000 * rate.value == close(1962.3233908948193)
    assert round(1000 * rate.value) == 1962
    assert provisioned_power(parts, "air").value == close(9800 * 1.5)


# Carbon


def test_k_sci_1_embodied_carbon_of_an_hour() -> None:
    """Source: Green-Software-Foundation/sci 29cab98, SPEC.md, reproduced."""
    share = embodied_carbon(constant(1e6, "g"), reserved_h=1, lifetime_h=4 * 8760)
    assert share.value == close(28.538812785388128)
    # "About 28 g".
    assert math.floor(share.value) == 28


DATABASE = embodied_carbon(constant(1433120, "g"), reserved_h=1, lifetime_h=35040, share=2 / 16)


def test_k_sci_2_a_database_server() -> None:
    """Source: Green-Software-Foundation/sci 29cab98, case-studies/eshoppen.md, reproduced with its M rounded to 5.112 g."""
    assert DATABASE.value == close(5.112442922374429)
    energy, grid = constant(0.0096, "kWh"), constant(951)
    assert carbon_intensity(energy, grid, DATABASE).value == close(14.242042922374429)
    assert carbon_intensity(energy, grid, constant(5.112, "g")).value == close(14.2416)


def test_k_sci_3_parts_add_up() -> None:
    """Source: the same case study, reproduced from its rounded 0.023 kWh and 4.305 g (exact: 4.3005 g)."""
    grid = constant(951)
    database = carbon_intensity(constant(0.0096, "kWh"), grid, constant(5.112, "g"))
    server = carbon_intensity(constant(0.023, "kWh"), grid, constant(4.305, "g"))
    assert server.value == close(26.178)
    assert sum_of([database, server]).value == close(40.4196)


def test_k_sci_4_a_day_of_tokens() -> None:
    """Source: the SCI formula, computed."""
    energy = constant(10.2 * 1.3 * 24, "kWh")
    assert energy.value == close(318.24)
    assert carbon_intensity(energy, constant(350)).value == close(111384)
    devices = embodied_carbon(constant(8 * 150000, "g"), reserved_h=24, lifetime_h=5 * 8760)
    assert devices.value == close(657.5342465753424)
    millions = constant(20000 * 86400 / 1e6)
    assert carbon_intensity(energy, constant(350), devices, millions).value == close(64.83885083713851)


def test_an_uncertain_grid_counts_for_its_part() -> None:
    grid = UncertainValue.of_error(350.0, 35.0)
    sci = carbon_intensity(constant(2.0, "kWh"), grid, constant(300.0, "g"))
    assert error_of(sci) == close(0.1 * 700 / 1000, rel=1e-7)
