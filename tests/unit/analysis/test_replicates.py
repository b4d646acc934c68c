"""The number of processes that a precision takes, and what a budget leaves of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from milabench.analysis.intervals import t_quantile
from milabench.analysis.paired_comparison import Pair, paired_verdicts, with_ratio
from milabench.analysis.replicates import (
    MOST_REPLICATES,
    PrecisionTarget,
    next_block,
    processes_for,
    within,
)
from milabench.analysis.two_samples import Estimate, judge_family


@pytest.mark.parametrize(
    ("spread", "for_one", "for_two", "for_five"),
    [(0.005, 4, 3, 2), (0.01, 10, 4, 2), (0.02, 33, 10, 3), (0.03, 72, 19, 5)],
)
def test_the_runs_per_side_for_a_ratio_are_those_of_the_table(
    spread: float, for_one: int, for_two: int, for_five: int
) -> None:
    found = [processes_for(spread, precision, means=2) for precision in (0.01, 0.02, 0.05)]
    assert found == [for_one, for_two, for_five]


@pytest.mark.parametrize("spread", [0.0, 0.002, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("precision", [0.005, 0.01, 0.05])
def test_the_number_of_processes_is_the_least_that_reaches_the_precision(spread: float, precision: float) -> None:
    def half(n: int) -> float:
        return t_quantile(0.975, n - 1) * spread / math.sqrt(n)

    n = processes_for(spread, precision)
    assert n == MOST_REPLICATES or half(n) <= math.log1p(precision)
    assert n == 2 or half(n - 1) > math.log1p(precision)


def measured_on(
    uncertainties: dict[str, Callable[[int], float]], target: PrecisionTarget, seconds: float = 10.0
) -> dict[str, int]:
    """The launches of benchmarks whose uncertainty after n launches is known, from three on."""
    assert target.precision is not None
    launches = dict.fromkeys(uncertainties, 3)
    while True:
        imprecise = {
            name: u(launches[name]) for name, u in uncertainties.items() if u(launches[name]) > target.precision
        }
        spent = seconds * sum(launches.values())
        after = next_block(launches, imprecise, dict.fromkeys(uncertainties, seconds), spent, target)
        if after == launches:
            return launches
        launches = after


def falling(first: float) -> Callable[[int], float]:
    """An uncertainty that falls as the root of the launches does, `first` at three of them."""
    return lambda n: first * math.sqrt(3 / n)


def test_what_is_precise_is_launched_no_more_and_what_scatters_until_it_is_or_for_two_minutes() -> None:
    benches = {"calm": falling(0.01), "shaky": falling(0.08), "wild": falling(0.5), "unknown": lambda _: math.inf}
    found = measured_on(benches, PrecisionTarget(precision=0.05))
    assert found == {"calm": 3, "shaky": 8, "wild": 12, "unknown": 12}  # of 10 s each: two minutes
    assert benches["shaky"](8) <= 0.05 < benches["shaky"](7)


@pytest.mark.parametrize(
    ("seconds", "most"), [(0.0, 30), (0.5, 30), (4.0, 30), (4.1, 29), (5.7, 21), (11.9, 10), (600.0, 10)]
)
def test_short_repeats_go_on_for_two_minutes(seconds: float, most: int) -> None:
    assert measured_on({"wild": falling(0.9)}, PrecisionTarget(precision=0.05), seconds) == {"wild": most}


@pytest.mark.parametrize("limit", [0.0, 60.0, 95.0, 140.0, 1000.0])
def test_no_launch_is_planned_that_the_time_does_not_reach(limit: float) -> None:
    benches = {"shaky": falling(0.08), "wild": falling(0.5)}
    for target in (PrecisionTarget(precision=0.05, budget_s=limit), PrecisionTarget(precision=0.05, most_s=limit)):
        found = measured_on(benches, target)
        assert 10 * sum(found.values()) <= max(limit, 60)
        assert found["wild"] >= found["shaky"]  # the least precise first
        assert (found["wild"] > 12) == (target.budget_s == 1000)  # a budget is the limit, not two minutes


def test_a_budget_trims_whole_blocks_from_the_end() -> None:
    wanted, seconds = {"a": 3, "b": 3}, {"a": 10.0, "b": 20.0}
    assert within(wanted, seconds, 90.0) == wanted
    assert within(wanted, seconds, 89.0) == {"a": 2, "b": 2}
    assert within(wanted, seconds, 29.0) == {"a": 0, "b": 0}


def ratio_of(a: dict[int, float], b: dict[int, float], *, lower_is_better: bool = False) -> Pair:
    pair = with_ratio(Pair(bench="x", a="A", b="B"), a, b, lower_is_better=lower_is_better)
    return paired_verdicts([pair])[0]


def test_pairs_cancel_what_drifts() -> None:
    drift = [1.0, 1.3, 0.7, 1.1, 0.9]
    wobble = [0.001, -0.001, 0.0005, -0.0005, 0.0]
    a = {block: 100 * drift[block] for block in range(5)}
    b = {block: 105 * drift[block] * math.exp(wobble[block]) for block in range(5)}
    found = ratio_of(a, b)
    assert (found.pairs, found.verdict) == (5, "FASTER")
    assert found.ratio == pytest.approx(1.05, rel=1e-3)
    assert found.ci95 is not None
    assert found.ci95[0] < 1.05 < found.ci95[1]


@pytest.mark.parametrize(
    ("ratio", "spread", "verdict"),
    [
        (0.9, 0.001, "SLOWER"),
        (1.0, 0.001, "EQUIVALENT"),
        (1.005, 0.0005, "DIFFERENT-BUT-SMALL"),
        (1.02, 0.05, "INCONCLUSIVE"),
    ],
)
def test_what_pairs_say_follows_from_interval_and_margin(ratio: float, spread: float, verdict: str) -> None:
    wobble = [1, -1, 0.5, -0.5, 0.0]
    found = ratio_of(dict.fromkeys(range(5), 1.0), {i: ratio * math.exp(spread * wobble[i]) for i in range(5)})
    assert found.verdict == verdict


@pytest.mark.parametrize("margin", [0.0, 0.01])
@pytest.mark.parametrize("error", [0.0, 1e-17])
@pytest.mark.parametrize("difference", [-2.2e-16, 0.0, 2.2e-16])
def test_what_differs_only_by_rounding_is_no_difference(difference: float, error: float, margin: float) -> None:
    (found,) = judge_family([Estimate(d=difference, error=error, freedom=4.0)], [margin])
    assert found is not None
    assert found.verdict == ("EQUIVALENT" if margin else "INCONCLUSIVE")


def test_where_less_is_better_the_ratio_is_turned_over() -> None:
    found = ratio_of(dict.fromkeys(range(4), 2.0), dict.fromkeys(range(4), 1.0), lower_is_better=True)
    assert found.ratio == pytest.approx(2.0)


def test_two_pairs_are_too_few_and_no_pair_is_none() -> None:
    few = ratio_of({0: 1.0, 1: 1.0}, {0: 2.0, 1: 2.0, 7: 9.0})
    assert (few.pairs, few.ci95, few.verdict) == (2, None, "INCONCLUSIVE")
    assert ratio_of({0: 1.0}, {1: 1.0}).ratio is None
