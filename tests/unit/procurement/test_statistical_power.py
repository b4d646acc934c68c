"""The power of a bound: the non-central t against scipy's numbers, and plans against simulated acceptances."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from milabench.acceptance.bounds import BoundTarget, decide_bound
from milabench.procurement.statistical_power import (
    Noise,
    PowerQuestion,
    cheapest_plan,
    launch_plan,
    noncentral_t_tail,
    power_of_bound,
)

NOISE = Noise(between_nodes=0.02, between_launches=0.01)
QUESTION = PowerQuestion(expected=1.0, bound=0.97)


# Computed by scipy 1.17.1, stats.nct.sf and stats.t.sf.
@pytest.mark.parametrize(
    ("freedom", "noncentrality", "x", "expected"),
    [
        (2, 1.0, 2.9, 0.17539025609845593),
        (4, 3.0, 2.13, 0.7915500523918034),
        (9, 2.5, 1.833, 0.7457712355871404),
        (30, 0.0, 1.7, 0.04973893779425843),
        (63, 4.0, 1.67, 0.9895854924136116),
    ],
)
def test_the_noncentral_t(freedom: float, noncentrality: float, x: float, expected: float) -> None:
    assert noncentral_t_tail(x, freedom, noncentrality) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("freedom", [1, 2, 7, 40, 1000])
def test_at_the_bound_itself_the_power_is_the_error_rate(freedom: float) -> None:
    assert power_of_bound(0.0, 0.1, freedom, confidence=0.95) == pytest.approx(0.05, rel=1e-8)


def acceptances(nodes: int, launches: int, expected: float, bound: float, tries: int) -> float:
    """Return how often simulated nodes' means pass the bound of acceptance."""
    noise, passed = random.Random(nodes * 100 + launches), 0
    target = BoundTarget(value=bound, is_minimum=expected > bound, confidence=0.95, to_fail=0.95)
    for _ in range(tries):
        means = []
        for _ in range(nodes):
            own = math.log(expected) + noise.gauss(0, NOISE.between_nodes)
            means.append(math.exp(own + noise.gauss(0, NOISE.between_launches / math.sqrt(launches))))
        passed += decide_bound(means, [], target).verdict == "PASS"
    return passed / tries


@pytest.mark.parametrize(("nodes", "launches"), [(3, 1), (5, 4), (8, 2)])
@pytest.mark.parametrize(("expected", "bound"), [(1.0, 0.98), (1.0, 1.03)])
def test_the_power_of_a_plan_is_how_often_acceptance_passes(
    nodes: int, launches: int, expected: float, bound: float
) -> None:
    plan = launch_plan(PowerQuestion(expected=expected, bound=bound), NOISE, nodes, launches)
    tries = 2000
    passed = acceptances(nodes, launches, expected, bound, tries)
    assert abs(passed - plan.power) <= 4 * math.sqrt(plan.power * (1 - plan.power) / tries)


def test_the_cheapest_plan_has_the_power_and_one_node_less_has_not() -> None:
    plan = cheapest_plan(QUESTION, NOISE, most_nodes=64)
    assert plan is not None
    assert (plan.nodes, plan.launches) == (8, 8)
    assert plan.power >= 0.95
    assert launch_plan(QUESTION, NOISE, 7, 1).power < 0.95
    assert acceptances(8, 1, 1.0, 0.97, 1000) >= 0.93


def test_where_nodes_are_few_more_launches_are_on_each_and_never_make_up_for_nodes_that_differ() -> None:
    plan = cheapest_plan(QUESTION, NOISE, most_nodes=7)
    assert plan is not None
    assert (plan.nodes, plan.launches_per_node) == (7, 2)
    assert cheapest_plan(QUESTION, NOISE, most_nodes=6) is None
    assert cheapest_plan(QUESTION, NOISE, most_nodes=1) is None


def test_one_node_stands_for_itself() -> None:
    alone = launch_plan(PowerQuestion(expected=1.0, bound=0.98), NOISE, 1, 5)
    assert alone.power == pytest.approx(power_of_bound(-math.log(0.98), 0.01 / math.sqrt(5), 4), rel=1e-12)


def test_a_measured_reference_costs_power() -> None:
    constant = launch_plan(QUESTION, NOISE, 6, 2)
    measured = launch_plan(replace(QUESTION, reference_error=0.008), NOISE, 6, 2)
    assert measured.power < constant.power


def test_without_noise_every_plan_is_enough() -> None:
    silent = Noise(between_nodes=0.0, between_launches=0.0)
    assert launch_plan(PowerQuestion(expected=1.0, bound=0.99), silent, 2, 1).power == 1.0


def test_a_bound_that_is_too_near_has_no_plan() -> None:
    assert cheapest_plan(PowerQuestion(expected=1.0, bound=0.999999), NOISE, most_nodes=100, most_launches=1) is None
