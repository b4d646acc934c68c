"""Budget questions: whole nodes, what they come to, and what the answers hang on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from milabench.errors import ConfigError
from milabench.procurement.budget import BudgetSystem, matching_nodes, nodes_for_money, nodes_for_power
from milabench.procurement.scores import MachineSize
from milabench.procurement.tender import Terms
from milabench.procurement.uncertainty import Deviation, UncertainValue, constant


def about(value: float, share: float, units: str = "", source: str = "") -> UncertainValue:
    return UncertainValue.within(value, share, units, source=source)


def system(name: str, score: float = 4.0, nodes: float = 100.0, **given: object) -> BudgetSystem:
    """A system whose score is the weighted mean of two terms, 2 and 8 for a score of 4."""
    terms = {"bert": (constant(score / 2), 1.0), "llama": (constant(score * 2), 1.0)}
    of: dict[str, object] = {
        "score": constant(score),
        "metric": "ssni",
        "mean": "geometric",
        # The terms are means of the whole system's score here: its nodes over those of the reference are one.
        "machine": MachineSize(nodes=nodes, reference_nodes=nodes),
        "terms": terms,
        **given,
    }
    return BudgetSystem(name=name, nodes=nodes, **of)  # type: ignore[arg-type]


K_COST_4 = Terms(
    years=constant(5),
    upkeep=0.06,
    electricity=constant(0.12, "EUR/kWh"),
    pue=constant(1.3),
    utilization=constant(0.8),
)


def test_money_buys_whole_nodes_k_cost_4() -> None:
    """K-COST-4, computed: 10 M, fixed 1 M, node 300000 + 5 y of (11151.1296 + 18000): 445755.648 a node, 20.19 so 20 nodes."""
    offered = system(
        "A",
        node_price=constant(300000, "EUR"),
        fixed_price=constant(1e6, "EUR"),
        node_kw=constant(10.2, "kW"),
    )
    answer = nodes_for_money(constant(1e7, "EUR"), offered, K_COST_4)
    assert (answer.nodes, answer.bounds) == (20, (20, 20))
    assert answer.quotient.value == pytest.approx(9e6 / 445755.648, rel=1e-12)
    # Computed again from the whole nodes: N enters the score.
    assert answer.score is not None
    assert answer.score.value == pytest.approx(4.0 * 20 / 100)
    assert answer.cost is not None
    assert answer.cost.value == pytest.approx(1e6 + 20 * 445755.648, rel=1e-12)
    assert answer.power_kw is not None
    assert answer.power_kw.value == pytest.approx(204)
    assert answer.energy_kwh is not None
    assert answer.energy_kwh.value == pytest.approx(20 * 10.2 * 1.3 * 0.8 * 8760)


def test_what_fits_in_a_power_is_rounded_down_with_its_bounds() -> None:
    answer = nodes_for_power(constant(400.0, "kW"), system("A", node_kw=about(10.2, 0.1, "kW")), Terms())
    assert (answer.nodes, answer.quotient.value) == (39, pytest.approx(400 / 10.2))
    assert answer.bounds == (math.floor(400 / 10.2 / 1.1), math.floor(400 / 10.2 * 1.1))
    exact = nodes_for_power(constant(408.0, "kW"), system("A", node_kw=constant(10.2, "kW")), Terms())
    assert exact.nodes == 40


def test_what_two_launches_far_apart_cost_bounds_the_nodes_by_a_number() -> None:
    far = UncertainValue.of_launches([1e-3, 1e4], "kW")
    assert nodes_for_power(constant(1e9, "kW"), system("A", node_kw=far), Terms()).bounds == (0, 1_000_000_000)
    unknown = nodes_for_power(
        constant(10.0, "kW"), system("A", node_kw=UncertainValue.of_launches([3.0], "kW")), Terms()
    )
    assert (unknown.nodes, unknown.bounds) == (3, None)


def test_a_quotient_that_is_whole_but_for_rounding_is_whole() -> None:
    assert 0.3 / 0.1 < 3
    assert nodes_for_power(constant(0.3, "kW"), system("A", node_kw=constant(0.1, "kW")), Terms()).nodes == 3


def test_what_matches_is_rounded_up_and_reaches_the_score() -> None:
    answer = matching_nodes(system("A", 4.0, 100), system("B", 7.0, 100), Terms())
    assert (answer.nodes, answer.bounds) == (58, (58, 58))  # 57.14
    assert answer.ratio is not None
    assert answer.ratio.value == pytest.approx(58 * 7 / 400)
    assert matching_nodes(system("A", 4.0, 100), system("B", 8.0, 100), Terms()).nodes == 50


def test_the_reference_that_two_scores_share_cancels_in_what_matches() -> None:
    common = Deviation(0.2, math.inf, "reference")
    own = Deviation(0.01, math.inf, "A")
    a = system("A", score=UncertainValue(value=4.0, deviations=(common, own)).value)
    b = system("B", score=7.0)
    a = replace(a, score=UncertainValue(value=4.0, deviations=(common, own)))
    b = replace(b, score=UncertainValue(value=7.0, deviations=(common,)))
    answer = matching_nodes(a, b, Terms())
    assert answer.bounds == (57, 59)  # 1 % of 57.14 to either side, not 20 %


def test_fewer_nodes_than_a_benchmark_runs_on_have_no_score() -> None:
    offered = system("A", node_kw=constant(10.0, "kW"), least_nodes=64.0)
    answer = nodes_for_power(constant(400.0, "kW"), offered, Terms())
    assert (answer.nodes, answer.score, answer.why_not) == (40, None, "a benchmark runs on 64 nodes")
    none = nodes_for_power(constant(4.0, "kW"), offered, Terms())
    assert (none.nodes, none.score, none.why_not) == (0, None, "not even one node")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "A: the price of a node is not known. Give its offer price: {node: 300 k EUR}"),
        ({"node_price": constant(1e5, "USD")}, "units differ: 'EUR' and 'USD'"),
        (
            {"node_price": constant(1e5, "EUR"), "fixed_price": constant(2e7, "EUR")},
            "A: its fixed price of 20,000,000 EUR leaves no part of 10,000,000 EUR for nodes",
        ),
    ],
)
def test_what_money_cannot_buy_is_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        nodes_for_money(constant(1e7, "EUR"), system("A", **given), Terms())


def test_an_answer_says_what_it_hangs_on_one_at_a_time() -> None:
    offered = system("A", node_price=about(300000, 0.2, "EUR"), node_kw=constant(10.0, "kW"))
    terms = replace(K_COST_4, upkeep=0.0, electricity=about(0.12, 0.05, "EUR/kWh"))
    answer = nodes_for_money(constant(1e7, "EUR"), offered, terms, vary=0.0)
    assert {each.name: each.basis for each in answer.swings} == {
        "price of a node": "stated",
        "price of energy": "stated",
    }
    # One at a time: the score at a price of 360000 and of 250000, all else as it is.
    energy = 5 * 10 * 1.3 * 0.8 * 8760 * 0.12
    price = next(swing for swing in answer.swings if swing.name == "price of a node").swing
    assert price[0] == pytest.approx(1e7 / (300000 / 1.2 + energy) * 0.04)
    assert price[1] == pytest.approx(1e7 / (300000 * 1.2 + energy) * 0.04)


def test_weights_and_unstated_amounts_are_varied_as_it_is_said_and_not_at_all_if_asked() -> None:
    offered = system("A", node_price=constant(3e5, "EUR"), node_kw=constant(10.0, "kW"))
    answer = nodes_for_money(constant(1e7, "EUR"), offered, K_COST_4, vary=0.2)
    ranges = {each.name: (*(end / each.value for end in each.range), each.basis) for each in answer.swings}
    assert ranges["price of energy"] == (pytest.approx(1 / 1.2), pytest.approx(1.2), "assumed")
    assert ranges["PUE"][:2] == (pytest.approx(1.3 / 1.2 / 1.3), pytest.approx(1.2))
    assert ranges["share of the year in use"][1] == pytest.approx(0.96 / 0.8)
    assert ranges["weight of bert"] == (pytest.approx(1 / 1.5), 1.5, "assumed")
    none = nodes_for_money(constant(1e7, "EUR"), offered, K_COST_4, vary=0.0)
    assert none.swings == ()


def test_a_share_of_use_stays_below_one() -> None:
    terms = replace(K_COST_4, utilization=constant(0.95), pue=constant(1.05))
    offered = system("A", node_price=constant(3e5, "EUR"), node_kw=constant(10.0, "kW"))
    swings = nodes_for_money(constant(1e7, "EUR"), offered, terms).swings
    ranges = {swing.name: swing.range for swing in swings}
    assert (ranges["share of the year in use"][1], ranges["PUE"][0]) == (1.0, 1.0)
