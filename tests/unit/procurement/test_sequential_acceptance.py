"""Acceptance launch by launch: what each number of launches decides, and that the stated error rates hold."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from milabench.acceptance.bounds import BoundTarget
from milabench.acceptance.criteria import parse_criteria
from milabench.analysis.acceptance_model import Acceptance, CriterionResult
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import Summary
from milabench.errors import UsageError
from milabench.procurement.sequential import FailureTest, Risks
from milabench.procurement.sequential_acceptance import (
    Looks,
    SequentialPlan,
    Trials,
    accept_so_far,
)
from tests.recorded_run import Recorded, rates, record


def run(base: Path, levels: Sequence[float], name: str = "run", *, left: int = 0, bench: str = "a") -> Summary:
    """A run of one benchmark with these rates of its launches; `left` more have still to begin."""
    steps = [
        Recorded(
            bench=bench, repeat=repeat, events=rates(*[level] * 3) if level else (), outcome="passed" if level else None
        )
        for repeat, level in enumerate([*levels, *[0.0] * left])
    ]
    return summarise(record(base / name, *steps, name=name, is_ended=not left))


def so_far(
    text: str,
    summary: Summary,
    reference: Summary | None = None,
    trials: Trials | None = None,
    **plan: float | str | None,
) -> Acceptance:
    chosen = SequentialPlan(**{"cap": 10, **plan, "trials": {"": trials or Trials()}})  # type: ignore[arg-type]
    return accept_so_far(parse_criteria(text.encode(), "a.yaml"), summary, reference, chosen)


def only(found: Acceptance, criterion: str = "minimum") -> CriterionResult:
    [check] = [check for check in found.checks if check.criterion == criterion]
    return check


AT_LEAST_100 = "benchmarks: {a: {minimum: 100 images/s}}"
TARGET = BoundTarget(value=100.0, is_minimum=True, confidence=0.95, to_fail=0.95)
CLEAR = (110.0, 110.1, 109.9, 110.05, 109.95, 110.0, 110.02, 109.98, 110.01, 109.99)


def test_a_good_system_is_accepted_before_the_cap_and_no_later_launch_counts(tmp_path: Path) -> None:
    found = [only(so_far(AT_LEAST_100, run(tmp_path, CLEAR[:n], f"r{n}", left=10 - n))) for n in range(3, 11)]
    verdicts = [check.verdict for check in found]
    first = verdicts.index("PASS")
    assert verdicts == ["INCONCLUSIVE"] * first + ["PASS"] * (8 - first)
    assert first < 7
    assert {check.measured for check in found[first:]} == {found[first].measured}
    assert f"accepted after {first + 3} of at most 10 repeats" in found[first].measured
    # One that has gone bad since changes nothing: it was decided.
    spoiled = run(tmp_path, (*CLEAR[: first + 3], *[50.0] * (7 - first)), "spoiled")
    assert only(so_far(AT_LEAST_100, spoiled)).measured == found[first].measured


def test_failures_of_a_benchmark_that_the_run_does_not_have_are_not_decided(tmp_path: Path) -> None:
    criteria = "benchmarks: {x: {required: false, failure_rate: 1 %}}"
    assert only(so_far(criteria, run(tmp_path, CLEAR[:3])), "failure_rate").verdict == "INCONCLUSIVE"


def test_a_bad_system_is_rejected(tmp_path: Path) -> None:
    found = so_far(AT_LEAST_100, run(tmp_path, [value - 20 for value in CLEAR]))
    assert found.verdict == "FAIL"
    assert "rejected after" in only(found).measured


def test_a_maximum_is_judged_on_its_other_side(tmp_path: Path) -> None:
    text = "benchmarks: {a: {maximum: 100 images/s}}"
    assert so_far(text, run(tmp_path, CLEAR)).verdict == "FAIL"
    assert so_far(text, run(tmp_path, [value - 20 for value in CLEAR], "low")).verdict == "PASS"


def test_what_a_reference_measured_is_agreed(tmp_path: Path) -> None:
    summary, reference = run(tmp_path, CLEAR), run(tmp_path, [90.0, 110.0], "reference")
    text = "benchmarks: {a: {minimum: 1 x reference}}"
    agreed = 99.4987437106620
    assert only(so_far(text, summary, reference)).value == pytest.approx(110.0 / agreed, rel=1e-3)
    assert so_far(text, summary, reference).verdict == "PASS"


@pytest.mark.slow
def test_what_is_still_needed_is_what_decides(tmp_path: Path) -> None:
    noisy = (104.0, 99.0, 103.0, 107.0)
    check = only(so_far(AT_LEAST_100, run(tmp_path, noisy, left=6), cap=40))
    assert check.verdict == "INCONCLUSIVE"
    more = int(check.missing.split("about ")[1].split()[0])
    assert f"of {40 - 4} left" in check.missing
    # Launches of the same mean and spread: the sample again and again, which has about its spread.
    longer = [noisy[index % 4] for index in range(4 + more + 4)]
    assert only(so_far(AT_LEAST_100, run(tmp_path, longer, "longer"), cap=40)).verdict == "PASS"


def test_at_the_cap_what_is_undecided_stays_so(tmp_path: Path) -> None:
    found = so_far(AT_LEAST_100, run(tmp_path, (99.0, 101.0, 100.5, 99.5)), cap=4)
    assert (found.verdict, only(found).missing.split(":")[0]) == ("INCONCLUSIVE", "nothing")
    more = so_far(AT_LEAST_100, run(tmp_path, (99.0, 101.0, 100.5, 99.5, *[120.0] * 20), "more"), cap=4)
    assert only(more).missing == only(found).missing


def test_two_launches_decide_nothing_and_a_run_that_has_not_begun_misses_its_first(tmp_path: Path) -> None:
    two = so_far(AT_LEAST_100, run(tmp_path, CLEAR[:2], left=8))
    assert only(two).missing == "repeats: 2 of at least 3"
    assert only(two, "runs").verdict == "PASS"
    none = so_far(AT_LEAST_100, run(tmp_path, (), "none", left=3))
    assert only(none, "runs").missing == "its first repeat, which has not ended"


def test_the_planned_launches_are_the_cap_where_none_is_given(tmp_path: Path) -> None:
    criteria = parse_criteria(AT_LEAST_100.encode(), "a.yaml")
    plan = SequentialPlan(launches={"a": 4})
    found = accept_so_far(criteria, run(tmp_path, CLEAR[:3]), None, plan)
    assert "of at most 4 repeats" in only(found).measured
    few = accept_so_far(criteria, run(tmp_path, CLEAR[:2], "few"), None, SequentialPlan(launches={"a": 2}))
    assert "Allow more with --cap" in only(few).missing


def drawn(noise: random.Random, centre: float, spread: float, cap: int) -> Iterator[tuple[float, ...]]:
    values: tuple[float, ...] = ()
    for _ in range(cap):
        values = (*values, centre * noise.lognormvariate(0, spread))
        yield values


@pytest.mark.slow
@pytest.mark.parametrize("cap", [5, 12])
def test_a_system_at_its_bound_is_rejected_and_accepted_no_more_often_than_stated(cap: int) -> None:
    """4,000 runs by the very function that judges the launches of a criterion."""
    noise, runs = random.Random(cap), 4000
    ends = [
        Looks(cap, Risks(alpha=0.05, beta=0.10))(list(drawn(noise, 100.0, 0.02, cap))[-1], [], TARGET).verdict
        for _ in range(runs)
    ]
    # Three standard errors of a share of 0.05 and 0.1.
    assert ends.count("FAIL") / runs <= 0.05 + 0.010
    assert ends.count("PASS") / runs <= 0.10 + 0.014
    # They are spent: a test that never decided anything would pass the two lines above.
    assert ends.count("FAIL") / runs >= 0.03
    assert ends.count("PASS") / runs >= 0.06


def test_a_better_system_needs_fewer_launches_than_a_fixed_number(tmp_path: Path) -> None:
    noise, used = random.Random(5), []
    for _ in range(300):
        for values in drawn(noise, 104.0, 0.02, 12):
            if Looks(12, Risks(alpha=0.05, beta=0.10))(values, [], TARGET).verdict == "PASS":
                used.append(len(values))
                break
    assert len(used) >= 285
    assert sum(used) / len(used) < 9


def test_failures_are_judged_by_walds_test(tmp_path: Path) -> None:
    """K-SPRT-1: p0 .01, p1 .05, alpha .05, beta .10 accepts at n = 55 without a failure."""
    text, rate = "failure_rate: 1 %", 0.05
    summary = run(tmp_path, CLEAR)

    def after(passes: int, failures: int = 0) -> CriterionResult:
        trials = Trials(failed=[False] * passes + [True] * failures, planned=500)
        return only(so_far(text, summary, None, trials, bad_failure_rate=rate), "failure_rate")

    assert (after(54).verdict, after(55).verdict) == ("INCONCLUSIVE", "PASS")
    assert after(54).missing == "steps: 1 more that pass would accept it or 4 more that fail would reject it"
    assert after(20, 3).verdict == "FAIL"


def test_the_exact_rates_of_a_short_plan_are_told(tmp_path: Path) -> None:
    """With six steps no test has the rates that were asked for: what it has stands in the notes."""
    found = so_far("failure_rate: 10 %", run(tmp_path, CLEAR), None, Trials(failed=[False] * 3, planned=6))
    (note,) = [note for note in found.notes if note.startswith("failures:")]
    test = FailureTest(good=0.1, bad=0.2, risks=Risks(alpha=0.05, beta=0.10, cap=6))
    decisions = {failed: test.decide(failed) for failed in product([False, True], repeat=6)}
    ends = {failed: found.ending for failed, found in decisions.items()}
    rejected = sum(0.1 ** sum(failed) * 0.9 ** (6 - sum(failed)) for failed, end in ends.items() if end == "reject")
    accepted = sum(0.2 ** sum(failed) * 0.8 ** (6 - sum(failed)) for failed, end in ends.items() if end == "accept")
    assert f"10.00% of the steps fail is rejected in {rejected:.1%} of all runs" in note
    assert f"20.00% fail is accepted in {accepted:.1%}. 6 steps do not decide" in note
    last = only(
        so_far("failure_rate: 10 %", run(tmp_path, CLEAR, "last"), None, Trials(failed=[False] * 6, planned=6)),
        "failure_rate",
    )
    assert (last.verdict, "too few to tell 10.00% from 20.00%" in last.missing) == ("INCONCLUSIVE", True)


def test_without_a_tolerated_failure_the_first_one_rejects(tmp_path: Path) -> None:
    text, summary = "failure_rate: 0", run(tmp_path, CLEAR)
    assert only(so_far(text, summary, None, Trials(failed=[False], planned=9)), "failure_rate").verdict == "PASS"
    assert only(so_far(text, summary, None, Trials(failed=[False, True], planned=9)), "failure_rate").verdict == "FAIL"


def test_the_stated_rates_are_shared_by_all_bounds(tmp_path: Path) -> None:
    text = "benchmarks: {a: {minimum: 100 images/s}, b: {minimum: 1 images/s}}"
    assert "(2.50% by each of 2 bounds)" in so_far(text, run(tmp_path, CLEAR)).notes[0]


@pytest.mark.parametrize("plan", [{"cap": 2}, {"cap": 1000}, {"alpha": 0.6, "beta": 0.5}])
def test_a_plan_that_is_none_is_refused(plan: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        SequentialPlan(**plan)  # type: ignore[arg-type]
