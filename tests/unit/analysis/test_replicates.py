"""The number of processes that a precision takes, and what a budget leaves of it."""

from __future__ import annotations

import math

import pytest

from milabench.analysis.intervals import t_quantile
from milabench.analysis.paired_comparison import paired_ratio
from milabench.analysis.replicates import (
    MOST_REPLICATES,
    PILOT_LAUNCHES,
    Pilot,
    processes_for,
    processes_for_ratio,
    replicates,
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
    found = [processes_for_ratio(spread, precision) for precision in (0.01, 0.02, 0.05)]
    assert found == [for_one, for_two, for_five]


@pytest.mark.parametrize("spread", [0.0, 0.002, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("precision", [0.005, 0.01, 0.05])
def test_the_number_of_processes_is_the_least_that_reaches_the_precision(spread: float, precision: float) -> None:
    def half(n: int) -> float:
        return t_quantile(0.975, n - 1) * spread / math.sqrt(n)

    n = processes_for(spread, precision)
    assert n == MOST_REPLICATES or half(n) <= math.log1p(precision)
    assert n == 2 or half(n - 1) > math.log1p(precision)


def pilot(spread: float, seconds: float = 10.0) -> Pilot:
    """Five launches whose logarithms have this standard deviation."""
    unit = math.sqrt(2.5)  # of -2, -1, 0, 1, 2
    rates = [100 * math.exp(spread * step / unit) for step in (-2, -1, 0, 1, 2)]
    return Pilot(rates=rates, replicate_s=seconds)


def test_a_quiet_benchmark_is_not_run_more_often_than_in_its_pilot() -> None:
    (found,) = replicates({"a": pilot(0.001)}, precision=0.01).values()
    assert (found.wanted, found.planned, found.is_capped) == (PILOT_LAUNCHES, PILOT_LAUNCHES, False)


def test_a_noisy_benchmark_is_run_as_often_as_its_spread_asks_for() -> None:
    (found,) = replicates({"a": pilot(0.02)}, precision=0.01).values()
    assert found.log_spread == pytest.approx(0.02)
    assert found.planned == found.wanted == processes_for(0.02, 0.01)


def test_a_budget_is_spent_block_by_block_and_what_it_does_not_reach_is_capped() -> None:
    pilots = {"quiet": pilot(0.001), "noisy": pilot(0.02), "worse": pilot(0.03)}
    found = replicates(pilots, precision=0.01, budget_s=100.0)
    assert found["quiet"].planned == PILOT_LAUNCHES
    # Two benchmarks of 10 s each: five whole blocks for 100 s.
    assert (found["noisy"].planned, found["worse"].planned) == (PILOT_LAUNCHES + 5, PILOT_LAUNCHES + 5)
    assert found["noisy"].is_capped


def test_no_budget_left_leaves_the_pilot() -> None:
    found = replicates({"a": pilot(0.05)}, precision=0.01, budget_s=-3.0)
    assert found["a"].planned == PILOT_LAUNCHES


def test_a_benchmark_with_fewer_than_three_rates_stays_at_its_pilot() -> None:
    found = replicates({"broken": Pilot(rates=(9.0, 1.0), replicate_s=1.0), "a": pilot(0.02)}, precision=0.01)
    assert (found["broken"].wanted, found["broken"].planned) == (None, PILOT_LAUNCHES)
    assert found["a"].planned > PILOT_LAUNCHES


def test_a_budget_without_a_pilot_trims_whole_blocks_from_the_end() -> None:
    wanted, seconds = {"a": 3, "b": 3}, {"a": 10.0, "b": 20.0}
    assert within(wanted, seconds, None) == wanted
    assert within(wanted, seconds, 90.0) == wanted
    assert within(wanted, seconds, 89.0) == {"a": 2, "b": 2}
    assert within(wanted, seconds, 29.0) == {"a": 0, "b": 0}


def test_pairs_cancel_what_drifts() -> None:
    drift = [1.0, 1.3, 0.7, 1.1, 0.9]
    wobble = [0.001, -0.001, 0.0005, -0.0005, 0.0]
    a = {block: 100 * drift[block] for block in range(5)}
    b = {block: 105 * drift[block] * math.exp(wobble[block]) for block in range(5)}
    found = paired_ratio("digits", a, b)
    assert found is not None
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
    found = paired_ratio("x", dict.fromkeys(range(5), 1.0), {i: ratio * math.exp(spread * wobble[i]) for i in range(5)})
    assert found is not None
    assert found.verdict == verdict


@pytest.mark.parametrize("margin", [0.0, 0.01])
@pytest.mark.parametrize("error", [0.0, 1e-17])
@pytest.mark.parametrize("difference", [-2.2e-16, 0.0, 2.2e-16])
def test_what_differs_only_by_rounding_is_no_difference(difference: float, error: float, margin: float) -> None:
    (found,) = judge_family([Estimate(d=difference, error=error, freedom=4.0)], [margin])
    assert found is not None
    assert found.verdict == ("EQUIVALENT" if margin else "INCONCLUSIVE")


def test_where_less_is_better_the_ratio_is_turned_over() -> None:
    found = paired_ratio("x", dict.fromkeys(range(4), 2.0), dict.fromkeys(range(4), 1.0), lower_is_better=True)
    assert found is not None
    assert found.ratio == pytest.approx(2.0)


def test_two_pairs_are_too_few_and_no_pair_is_none() -> None:
    few = paired_ratio("x", {0: 1.0, 1: 1.0}, {0: 2.0, 1: 2.0, 7: 9.0})
    assert few is not None
    assert (few.pairs, few.ci95, few.verdict) == (2, None, "INCONCLUSIVE")
    assert paired_ratio("x", {0: 1.0}, {1: 1.0}) is None
