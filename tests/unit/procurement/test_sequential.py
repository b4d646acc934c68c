"""Wald's sequential test of failures: bounds after his formulas, and exact rates."""

from __future__ import annotations

import pytest

from milabench.errors import UsageError
from milabench.procurement.sequential import FailureTest, Risks


def failed(trials: int, *failures: int) -> list[bool]:
    """Return so many trials, those of these numbers (from 1) failed."""
    return [trial in failures for trial in range(1, trials + 1)]


def lines(plan: FailureTest) -> tuple[float, float]:
    """Return Wald's slope s, failures a trial, and h_acc, by which the accepting line lies below s n."""
    both = plan.per_failure + plan.per_pass
    return plan.per_pass / both, -plan.risks.lower / both


# K-SPRT-1: computed.
def test_the_lines_of_one_and_five_per_cent() -> None:
    plan = FailureTest(good=0.01, bad=0.05, risks=Risks(alpha=0.05, beta=0.10))
    assert (plan.risks.upper, plan.risks.lower) == pytest.approx((2.8903717578961645, -2.251291798606495), rel=1e-12)
    assert lines(plan) == pytest.approx((0.024985422233589946, 1.3638564777733677), rel=1e-12)
    late = [plan.decide(failed(300, *(40, 80, 120)[:failures])) for failures in range(4)]
    assert [(each.ending, each.used) for each in late] == [("accept", used) for used in (55, 95, 135, 175)]


# K-SPRT-2: computed, and simulated with 20000 trials: 0.9704 and 0.0989.
def test_the_exact_rates_of_one_and_five_per_cent() -> None:
    plan = FailureTest(good=0.01, bad=0.05, risks=Risks(alpha=0.05, beta=0.10))
    good, bad = plan.exact(0.01), plan.exact(0.05)
    assert good.accept == pytest.approx(0.970985732651271, rel=1e-9)
    assert bad.accept == pytest.approx(0.10055293110847102, rel=1e-9)
    assert good.accept + good.reject == pytest.approx(1, abs=1e-12)


# K-SPRT-3: computed.
def test_the_lines_of_five_and_twenty_per_cent() -> None:
    plan = FailureTest(good=0.05, bad=0.20)
    assert lines(plan) == pytest.approx((0.11029159613060063, 1.4448542019346995), rel=1e-12)
    late = [plan.decide(failed(100, *(13, 22, 31)[:failures])) for failures in range(4)]
    assert [(each.ending, each.used) for each in late] == [("accept", used) for used in (14, 23, 32, 41)]


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


def test_what_is_undecided_at_the_cap_stays_so() -> None:
    plan = FailureTest(good=0.01, bad=0.05, risks=Risks(cap=50))
    decision = plan.decide(failed(60))
    assert (decision.ending, decision.used, decision.is_at_cap) == (None, 50, True)
    before = plan.decide(failed(49))
    assert (before.ending, before.until_accepted, before.until_rejected) == (None, None, None)
    good = plan.exact(0.01)
    assert good.accept == 0  # 55 passes would


def test_the_exact_rates_up_to_a_cap_are_those_of_all_sequences() -> None:
    """By counting all 2^12 sequences of 12 trials."""
    plan = FailureTest(good=0.1, bad=0.4, risks=Risks(cap=12))
    accept = reject = 0.0
    for number in range(1 << 12):
        sequence = [bool(number >> bit & 1) for bit in range(12)]
        probability = 0.2 ** sum(sequence) * 0.8 ** (12 - sum(sequence))
        decision = plan.decide(sequence)
        accept += probability * (decision.ending == "accept")
        reject += probability * (decision.ending == "reject")
    exact = plan.exact(0.2)
    assert (exact.accept, exact.reject) == pytest.approx((accept, reject), rel=1e-12)


def test_no_cap_and_no_drift_still_comes_to_an_end() -> None:
    plan = FailureTest(good=0.01, bad=0.05)
    exact = plan.exact(lines(plan)[0])
    assert exact.accept + exact.reject == pytest.approx(1, abs=1e-12)
    upper, lower = plan.risks.upper, plan.risks.lower
    assert exact.accept == pytest.approx(
        upper / (upper - lower), abs=0.05
    )  # Wald's own, which ignores by how much it oversteps


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FailureTest(good=0.05, bad=0.01), r"failure rates 0.05 \(good\) and 0.01 \(bad\): 0 < good < bad < 1"),
        (lambda: Risks(alpha=0.6, beta=0.5), "error rates 0.6 and 0.5: both above 0, and below 1 together"),
    ],
)
def test_a_plan_that_is_none_is_refused_in_one_line(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=message):
        make()
