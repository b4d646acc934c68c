"""Energy, money and carbon of a run's work by the terms of a tender."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.analysis.summary_model import Expense, Summary
from milabench.errors import ConfigError
from milabench.procurement.expenses import BOARD_LEVEL, PROVISIONED_LEVEL
from milabench.procurement.offer import Offer, parse_offer
from milabench.procurement.offer_costs import offer_costs
from milabench.procurement.requests import MeterRequest
from milabench.procurement.run_expenses import with_expenses
from milabench.procurement.run_meters import import_meter
from milabench.procurement.tender import Tender, parse_tender
from milabench.workflow.summaries import summary_of
from tests.metered_runs import BUSY_W, LAUNCHES, RATE, metered_run, wall_csv
from tests.recorded_run import Recorded, rates, record

HEAD = "metric: index\nbenchmarks: {llama: {reference: {value: 10 tokens/s}}}\n"


def tender(terms: str) -> Tender:
    return parse_tender(f"{HEAD}terms: {{{terms}}}\n".encode(), "procurement.yaml")


def by_quantity(summary: Summary) -> dict[tuple[str, str], Expense]:
    return {(expense.quantity, expense.per): expense for expense in summary.expenses}


def provisioned(base: Path, **costs: object) -> Summary:
    """A run at 20,000 tokens/s on a system of 10.2 kW, as its system file says."""
    events = rates(*[20000.0] * 5, units="tokens/s")
    steps = [Recorded(bench="llama", repeat=repeat, events=events) for repeat in range(3)]
    run = record(base, *steps, manifest={"costs": {"power_W": 10200, **costs}})
    return summary_of(run)


def expenses_of(base: Path, terms: str, **costs: object) -> dict[tuple[str, str], Expense]:
    return by_quantity(with_expenses(provisioned(base, **costs), None, tender(terms), {"power_W": 10200, **costs}))


def test_the_cost_of_tokens_is_that_of_owning_the_system_k_cost_3(tmp_path: Path) -> None:
    """K-COST-3, computed, with energy at 80 % use: 300000 (CRF + 6 %) + 11151.1296 a year, 504576 M tokens."""
    terms = "currency: USD, years: 5, interest: 5 %, upkeep: 6 %, electricity: 0.12 USD/kWh, pue: 1.3, utilization: 0.8"
    found = expenses_of(tmp_path, terms, price=300000, currency="USD")
    year = 300000 * (0.23097479812826793 + 0.06) + 11151.1296
    assert found["cost", "year"].value == pytest.approx(year, rel=1e-12)
    assert found["cost", "1M tokens"].value == pytest.approx(year / 504576, rel=1e-12)
    assert found["cost", "token"].units == "USD"
    assert found["cost", "year"].parts == ("price", "upkeep", "energy")
    assert found["energy", "token"].value == pytest.approx(0.51 * 1.3, rel=1e-12)  # K-COST-3: 0.51 J/token, and the PUE
    assert found["energy", "1M tokens"].value == pytest.approx(0.18416666666666667, rel=1e-12)
    assert (found["energy", "token"].power, found["energy", "token"].level) == ("provisioned", PROVISIONED_LEVEL)


def test_the_carbon_of_tokens_is_that_of_energy_and_of_making_the_node_k_sci_4(tmp_path: Path) -> None:
    """K-SCI-4, computed by the formula of Green-Software-Foundation/sci 29cab98.

    8 devices of 150 kg, 5 years, PUE 1.3, 350 g/kWh, 20000 tokens/s: 64.83885083713851 g per 1M tokens.
    """
    found = expenses_of(tmp_path, "years: 5, pue: 1.3, grid_carbon: 350 g/kWh, embodied_carbon: 1200 kg")
    carbon = found["carbon", "1M tokens"]
    assert (carbon.value, carbon.units) == (pytest.approx(0.06483885083713851, rel=1e-12), "kg")
    assert carbon.parts == ("energy", "making the nodes")
    assert not [key for key in found if key[0] == "cost"]


def test_what_use_and_rate_have_in_common_cancels_in_an_item_but_not_in_a_year(tmp_path: Path) -> None:
    found = expenses_of(tmp_path, "electricity: 0.12 EUR/kWh, utilization: 0.8 +- 0.1")
    item, year = found["cost", "token"], found["cost", "year"]
    assert item.ci95 is not None
    assert item.ci95 == pytest.approx((item.value, item.value))
    assert year.ci95 is not None
    assert year.ci95[1] / year.value == pytest.approx(0.9 / 0.8)


def test_boards_are_named_as_what_no_level_counts(tmp_path: Path) -> None:
    run = metered_run(tmp_path)
    found = by_quantity(with_expenses(summary_of(run), run, tender("grid_carbon: 350 g/kWh")))
    energy = found["energy", "token"]
    assert (energy.power, energy.level) == ("board", BOARD_LEVEL)
    assert energy.value == pytest.approx(BUSY_W / RATE, rel=0.01)
    run_energy = found["energy", "run"]
    seconds = sum(stop - start for start, stop in LAUNCHES) / 3
    assert run_energy.value == pytest.approx(BUSY_W * seconds / 3.6e6, rel=0.01)


def offer(**given: str) -> Offer:
    text = "".join(f"{key}: {value}\n" for key, value in given.items())
    return parse_offer(f"vendor: A\n{text}benchmarks: {{llama: {{run: run}}}}\n".encode(), "offer.yaml")


def varied(base: Path) -> Summary:
    """Three launches at about 20,000 tokens/s on one node."""
    steps = [
        Recorded(bench="llama", repeat=repeat, events=rates(*[20000.0 * by] * 5, units="tokens/s"))
        for repeat, by in enumerate((0.97, 1.0, 1.04))
    ]
    return summary_of(record(base, *steps))


def test_the_error_of_a_year_s_energy_is_that_of_the_declared_power_alone(tmp_path: Path) -> None:
    summary, terms = varied(tmp_path), tender("grid_carbon: 350 g/kWh")
    for power, most in (("9 kW", 1.0), ("9 kW +- 20 %", 1.2)):
        bid = offer(nodes="1", power=f"{{node: {power}}}")
        found = by_quantity(with_expenses(summary, None, terms, {}, bid))
        for quantity, value in (("energy", 9 * 8760), ("carbon", 9 * 8760 * 0.35)):
            year = found[quantity, "year"]
            assert year.ci95 is not None
            assert (year.value, year.ci95[1] / year.value) == (pytest.approx(value), pytest.approx(most))
        item = found["energy", "token"]
        assert item.ci95 is not None
        # An item hangs on the rate too, which varied from launch to launch.
        assert item.ci95[1] / item.value > most + 0.001


OFFER = {"nodes": "40", "price": "{node: 100 k EUR, fixed: 1 M EUR}", "power": "{node: 5 kW +- 2 %}"}
TERMS = (
    "currency: EUR, years: 5, interest: 5 %, upkeep: 6 %, electricity: 0.12 +- 0.02 EUR/kWh, pue: 1.3 +- 0.05,"
    " grid_carbon: 350 g/kWh, embodied_carbon: 1200 kg, utilization: 0.8 +- 0.1"
)


def test_the_year_of_an_offer_is_that_of_all_its_nodes_and_of_its_whole_price(tmp_path: Path) -> None:
    asked, bid = tender(TERMS), offer(**OFFER)
    found = by_quantity(with_expenses(varied(tmp_path), None, asked, {}, bid))
    whole = offer_costs(bid, asked).yearly
    assert whole is not None
    year, node = found["cost", "year"], found["cost", "node year"]
    assert (year.nodes, year.value) == (40, pytest.approx(whole.total.value))
    assert year.ci95 == pytest.approx(whole.total.interval())
    assert year.value == pytest.approx(40 * node.value)
    # One node's power, with PUE and use, times all of them; and the making of all of them over five years.
    assert found["energy", "year"].value == pytest.approx(40 * 5 * 1.3 * 0.8 * 8760)
    assert found["energy", "node year"].value == pytest.approx(5 * 1.3 * 0.8 * 8760)
    assert found["carbon", "year"].value == pytest.approx(found["energy", "year"].value * 0.35 + 40 * 1200 / 5)


def test_the_fixed_price_is_borne_by_items_as_by_the_year(tmp_path: Path) -> None:
    asked, summary = tender(TERMS), varied(tmp_path)
    cheap, dear = (
        by_quantity(with_expenses(summary, None, asked, {}, offer(**{**OFFER, "price": f"{{node: 100 k EUR{rest}}}"})))
        for rest in ("", ", fixed: 4 M EUR")
    )
    # 4 M more for 40 nodes is what a node costs; the year pays it by its annuity, and upkeep is of the nodes.
    more = dear["cost", "year"].value - cheap["cost", "year"].value
    assert more == pytest.approx(4e6 * 0.23097479812826793)
    rate = 20000 * (0.97 * 1.0 * 1.04) ** (1 / 3)
    of_item = dear["cost", "token"].value - cheap["cost", "token"].value
    assert of_item == pytest.approx(more / 40 / (rate * 0.8 * 8760 * 3600))
    assert dear["energy", "year"] == cheap["energy", "year"]


PHASES = "[{nodes: 10, months: 12}, {nodes: 40, months: 48}]"


def test_a_phase_that_arrives_later_costs_from_its_month_on() -> None:
    """Ten nodes for a year and forty for four: by hand, month by month."""
    asked, bid = tender(TERMS), offer(**{**OFFER, "phases": PHASES})
    costs = offer_costs(bid, asked)
    assert costs.yearly is not None and costs.lifetime is not None and costs.yearly.upkeep is not None
    node_years = 10 * 1 + 40 * 4
    energy = node_years * 5 * 1.3 * 0.8 * 8760 * 0.12
    upkeep = 0.06 * node_years * 100e3
    assert 5 * costs.yearly.energy.value == pytest.approx(energy)
    assert 5 * costs.yearly.upkeep.value == pytest.approx(upkeep)
    assert costs.lifetime.value == pytest.approx(40 * 100e3 + 1e6 + energy + upkeep)
    # The thirty of the second year are paid a year later, at 5 % interest.
    worth = 10 * 100e3 + 1e6 + 30 * 100e3 / 1.05
    assert costs.yearly.capital.value == pytest.approx(worth * 0.23097479812826793)
    assert costs.yearly.total.value == pytest.approx(costs.yearly.capital.value + (energy + upkeep) / 5)
    assert (costs.nodes_in_use, costs.price) == (
        pytest.approx(node_years / 200),
        offer_costs(offer(**OFFER), asked).price,
    )


def test_upkeep_is_of_the_nodes_and_of_a_price_that_names_none() -> None:
    asked = tender(TERMS)
    for price, kept in (
        ("{node: 100 k EUR, fixed: 1 M EUR}", 4e6),
        ("{node: 100 k EUR}", 4e6),
        ("{fixed: 3 M EUR}", 3e6),
    ):
        for phases in ({}, {"phases": "[{nodes: 40, months: 60}]"}):
            costs = offer_costs(offer(**{**OFFER, "price": price, **phases}), asked)
            assert costs.yearly is not None and costs.yearly.upkeep is not None
            assert costs.yearly.upkeep.value == pytest.approx(0.06 * kept)


@pytest.mark.parametrize(
    "phases", ["[{nodes: 40, months: 60}]", "[{nodes: 40, months: 6}]", "[{nodes: 40, months: 600}]"]
)
def test_one_phase_of_all_nodes_is_none(phases: str) -> None:
    asked = tender(TERMS)
    assert offer_costs(offer(**{**OFFER, "phases": phases}), asked) == offer_costs(offer(**OFFER), asked)


def test_what_arrives_after_the_years_is_paid_and_never_used() -> None:
    late = "[{nodes: 10, months: 60}, {nodes: 40, months: 1}]"
    costs = offer_costs(offer(**{**OFFER, "phases": late}), tender(TERMS))
    assert costs.nodes_in_use == pytest.approx(0.25)
    assert costs.nodes_paid == pytest.approx((10 + 30 / 1.05**5) / 40)


DECLARED = "nodes: 1\ninterconnect: estimated\nerror: 5 %\n"


def test_a_meter_comes_before_boards_with_its_error_its_level_and_its_source(tmp_path: Path) -> None:
    run = metered_run(tmp_path)
    (tmp_path / "pdu.csv").write_text(wall_csv(37.0))
    (tmp_path / "meter.yaml").write_text(DECLARED)
    meter = MeterRequest(
        run=str(run.path), file=tmp_path / "pdu.csv", base=tmp_path, declaration=tmp_path / "meter.yaml"
    )
    import_meter(meter)
    # Without a tender: energy alone, for nobody asked for money.
    summary = with_expenses(summary_of(run), run, None)
    assert {expense.quantity for expense in summary.expenses} == {"energy"}
    energy = by_quantity(summary)["energy", "token"]
    assert (energy.power, energy.level) == ("meter", "L1")
    assert energy.source.startswith("pdu.csv, clock +3")
    # 200 W and 1.1 times the device, which warms up for ten seconds of each launch.
    powers = [200 + 1.1 * (90 * 10 + 400 * (stop - start - 10)) / (stop - start) for start, stop in LAUNCHES]
    assert energy.value == pytest.approx(sum(powers) / 3 / RATE, rel=0.01)
    assert energy.ci95 is not None
    assert energy.ci95[1] / energy.value > 1.05  # the meter's own 5 %


def test_prices_in_two_currencies_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        expenses_of(tmp_path, "years: 5, electricity: 0.12 EUR/kWh", price=300000, currency="USD")
    assert (
        str(refused.value)
        == "currency: prices in two currencies: EUR of the tender, USD of the system. Convert to the same currency"
    )


def test_a_benchmark_without_power_or_without_items_takes_nothing_that_is_known(tmp_path: Path) -> None:
    terms = tender("electricity: 0.12 EUR/kWh")
    run = record(tmp_path, Recorded(bench="llama", events=rates(1.0, 2.0, units="tokens/s")))
    assert with_expenses(summary_of(run), run, terms).expenses == ()
    other = record(tmp_path, Recorded(bench="llama", events=rates(1.0, 2.0, units="TFLOP")), name="other")
    assert with_expenses(summary_of(other), None, terms, {"power_W": 100}).expenses == ()
