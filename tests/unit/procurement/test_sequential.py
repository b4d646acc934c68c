"""Wald's sequential tests: bounds and averages after his formulas, exact rates, and what simulated sequences really do."""

from __future__ import annotations

import math
import random

import pytest

from milabench.errors import UsageError
from milabench.procurement.sequential import AtCap, FailureTest, MeanTest, Risks


def failed(trials: int, *failures: int) -> list[bool]:
    """Return so many trials, those of these numbers (from 1) failed."""
    return [trial in failures for trial in range(1, trials + 1)]


# K-SPRT-1: computed.
def test_the_lines_of_one_and_five_per_cent() -> None:
    plan = FailureTest(good=0.01, bad=0.05, risks=Risks(alpha=0.05, beta=0.10))
    assert (plan.risks.upper, plan.risks.lower) == pytest.approx((2.8903717578961645, -2.251291798606495), rel=1e-12)
    lines = (plan.slope, plan.accept_below, plan.reject_above)
    assert lines == pytest.approx((0.024985422233589946, 1.3638564777733677, 1.751017903418798), rel=1e-12)
    assert [plan.accepts_at(failures) for failures in range(4)] == [55, 95, 135, 175]
    expected = [plan.expected_trials(truth) for truth in ("good", "bad", "between")]
    assert expected == pytest.approx([80.61920043906166, 57.547661957045065, 98.03055361204063], rel=1e-12)
    assert plan.accept_between() == pytest.approx(0.5621471973289098, rel=1e-12)


# K-SPRT-2: computed, and simulated with 20000 trials: 0.9704, 85.75 and 0.0989, 71.28.
def test_the_exact_rates_of_one_and_five_per_cent() -> None:
    plan = FailureTest(good=0.01, bad=0.05, risks=Risks(alpha=0.05, beta=0.10))
    good, bad = plan.exact(0.01), plan.exact(0.05)
    assert (good.accept, good.expected) == pytest.approx((0.970985732651271, 85.07324043923175), rel=1e-9)
    assert (bad.accept, bad.expected) == pytest.approx((0.10055293110847102, 71.04733302142974), rel=1e-9)
    assert good.accept + good.reject == pytest.approx(1, abs=1e-12)


# K-SPRT-3: computed.
def test_the_lines_of_five_and_twenty_per_cent() -> None:
    plan = FailureTest(good=0.05, bad=0.20)
    lines = (plan.slope, plan.accept_below, plan.reject_above)
    assert lines == pytest.approx((0.11029159613060063, 1.4448542019346995, 1.8550086586441712), rel=1e-12)
    assert [plan.accepts_at(failures) for failures in range(4)] == [14, 23, 32, 41]
    expected = [plan.expected_trials(truth) for truth in ("good", "bad")]
    assert expected == pytest.approx([21.2278516583536, 16.99977155770674], rel=1e-12)


# K-SPRT-4: computed.
def test_a_mean_of_100_against_95() -> None:
    plan = MeanTest(good=100, bad=95, sigma=5)
    values = [97, 101, 99, 98, 102, 100, 103, 99, 101, 100]
    ratios = [plan.decide(values[:used]).log_ratio for used in range(1, 7)]
    assert ratios == pytest.approx([0.1, -0.6, -0.9, -1.0, -1.9, -2.4], rel=1e-12)
    decision = plan.decide(values)
    assert (decision.ending, decision.used) == ("accept", 6)
    expected = [plan.expected_trials(truth) for truth in ("good", "bad")]
    assert expected == pytest.approx([3.9884172415627233, 4.752410804491798], rel=1e-12)
    assert plan.fixed_trials() == pytest.approx(8.563847350667974, rel=1e-12)


def test_trials_accept_and_reject_at_the_lines() -> None:
    plan = FailureTest(good=0.01, bad=0.05)
    assert plan.decide(failed(54)).ending is None
    assert plan.decide(failed(55)).ending == "accept"
    assert plan.decide(failed(94, 3)).ending is None
    assert plan.decide(failed(200, 3)).used == 95
    # d >= s n + h_rej: two failures in the first nine.
    assert plan.decide(failed(9, 2, 9)).ending == "reject"
    assert plan.decide(failed(10, 2, 10)).ending is None


def test_what_is_still_needed_is_enough_and_no_more() -> None:
    plan = FailureTest(good=0.01, bad=0.05)
    so_far = plan.decide(failed(30, 12))
    assert so_far.until_accepted == 65
    assert so_far.until_rejected is not None
    assert plan.decide([*failed(30, 12), *failed(64)]).ending is None
    assert plan.decide([*failed(30, 12), *failed(65)]).ending == "accept"
    bad = int(so_far.until_rejected)
    assert plan.decide([*failed(30, 12), *[True] * bad]).ending == "reject"
    assert plan.decide([*failed(30, 12), *[True] * (bad - 1)]).ending is None

    means = MeanTest(good=100, bad=95, sigma=5)
    more = means.decide([97, 101])
    assert (more.until_accepted, more.until_rejected) == (4, 7)
    assert means.decide([97, 101, *[100.0] * 4]).ending == "accept"
    assert means.decide([97, 101, *[100.0] * 3]).ending is None
    assert means.decide([97, 101, *[95.0] * 7]).ending == "reject"
    assert means.decide([97, 101, *[95.0] * 6]).ending is None


@pytest.mark.parametrize(("at_cap", "ending"), [("accept", "accept"), ("reject", "reject"), ("nearer", "accept")])
def test_the_cap_decides(at_cap: AtCap, ending: str) -> None:
    plan = FailureTest(good=0.01, bad=0.05, risks=Risks(cap=50, at_cap=at_cap))
    decision = plan.decide(failed(60))
    assert (decision.ending, decision.used, decision.is_by_cap) == (ending, 50, True)
    before = plan.decide(failed(49))
    assert (before.ending, before.until_accepted, before.until_rejected) == (None, None, None)
    good = plan.exact(0.01)
    assert good.accept + good.reject == pytest.approx(1, abs=1e-12)
    assert good.expected <= 50


def test_the_exact_rates_up_to_a_cap_are_those_of_all_sequences() -> None:
    """By counting all 2^12 sequences of 12 trials."""
    plan = FailureTest(good=0.1, bad=0.4, risks=Risks(cap=12, at_cap="nearer"))
    accept = trials = 0.0
    for number in range(1 << 12):
        sequence = [bool(number >> bit & 1) for bit in range(12)]
        probability = 0.2 ** sum(sequence) * 0.8 ** (12 - sum(sequence))
        decision = plan.decide(sequence)
        accept += probability * (decision.ending == "accept")
        trials += probability * decision.used
    exact = plan.exact(0.2)
    assert (exact.accept, exact.expected) == pytest.approx((accept, trials), rel=1e-12)


def share_within(share: float, exact: float, tries: int) -> bool:
    """Whether a share of simulated sequences is within four standard deviations of a probability."""
    return abs(share - exact) <= 4 * math.sqrt(exact * (1 - exact) / tries)


@pytest.mark.parametrize("launches", [3, 5, 20])
@pytest.mark.parametrize(("truth", "ending", "most"), [(0.0, "reject", 0.05), (-0.03, "accept", 0.10)])
def test_error_rates_hold_where_the_spread_is_that_of_a_few_launches(
    launches: int, truth: float, ending: str, most: float
) -> None:
    """4,000 references of a spread of 3 % that nobody knows, each with a system as good as it or 3 % slower."""
    noise, tries, wrong = random.Random(launches), 4000, 0
    for _ in range(tries):
        sigma = math.sqrt(sum(noise.gauss(0, 0.03) ** 2 for _ in range(launches - 1)) / (launches - 1))
        plan = MeanTest.of_estimate(0.0, -0.03, sigma, launches - 1, Risks(alpha=0.05, beta=0.10))
        wrong += plan.decide([noise.gauss(truth, 0.03) for _ in range(60)]).ending == ending
    assert wrong / tries <= most
    # Not by never deciding: overshoot makes the real rates about half of the stated ones.
    assert wrong / tries >= most / 4


def test_a_spread_that_is_known_has_walds_own_lines() -> None:
    plan = MeanTest.of_estimate(100.0, 95.0, 5.0, 1e9, Risks())
    assert (plan.risks.upper, plan.risks.lower) == pytest.approx((Risks().upper, Risks().lower), rel=1e-6)


def test_the_larger_mean_may_be_the_bad_one() -> None:
    assert MeanTest(good=95, bad=100, sigma=5).decide([110.0, 110.0, 110.0]).ending == "reject"
    assert MeanTest(good=100, bad=95, sigma=5).decide([110.0, 110.0, 110.0]).ending == "accept"


def test_no_cap_and_no_drift_still_comes_to_an_end() -> None:
    plan = FailureTest(good=0.01, bad=0.05)
    exact = plan.exact(plan.slope)
    assert exact.accept + exact.reject == pytest.approx(1, abs=1e-12)
    assert exact.accept == pytest.approx(plan.accept_between(), abs=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FailureTest(good=0.05, bad=0.01), r"failure rates 0.05 \(good\) and 0.01 \(bad\): 0 < good < bad < 1"),
        (lambda: MeanTest(good=1, bad=1, sigma=1), "two different means"),
        (lambda: MeanTest(good=1, bad=2, sigma=0), "a sigma above 0"),
        (lambda: Risks(alpha=0.6, beta=0.5), "error rates 0.6 and 0.5: both above 0, and below 1 together"),
        (lambda: Risks(cap=0), "a cap of 0"),
    ],
)
def test_a_plan_that_is_none_is_refused_in_one_line(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=message):
        make()
