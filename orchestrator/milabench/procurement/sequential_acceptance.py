"""Acceptance while a run grows: after each repeat a bound is accepted, rejected or goes on, up to a cap, with stated error rates.

Bounds are checked by group-sequential tests (group_sequential.py) on Student's t of the logarithms: a look after each repeat from
the third to the cap. Failures are checked by Wald's sequential probability ratio (sequential.py). `alpha` is of rejecting a good
system, `beta` of accepting a bad one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from msgspec import structs

from milabench.acceptance.bounds import BoundDecision, BoundTarget, decide_bound
from milabench.acceptance.criteria import BenchCriteria, Criteria
from milabench.acceptance.evaluate import OtherWork, evaluate_criteria
from milabench.analysis.acceptance_model import Acceptance, CriterionResult, Verdict
from milabench.analysis.intervals import LEAST_LAUNCHES
from milabench.analysis.sample_statistics import geometric_mean, mean, stdev
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.two_samples import tail
from milabench.errors import UsageError
from milabench.procurement.gauss_legendre import normal_tail
from milabench.procurement.group_sequential import spending_bounds
from milabench.procurement.sequential import FailureTest, Risks

SHARE_SPENT = 0.8
"""The part of an error rate that the bounds of looks spend. They are exact for a known spread. With a spread estimated from the
repeats, as here, errors are up to 1.2 times as frequent (by simulation, for caps of 4 to 30 and rates of 0.25 to 10 %)."""
BAD_FAILURES = 2.0  # times the failure rate that is promised: a bad system, where none is given
LARGEST_CAP = 100
"""The largest cap: a plan with more looks is not meant as a sequential test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """The steps that have ended, in this order, whether each failed, and how many were planned."""

    failed: Sequence[bool] = ()
    planned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialPlan:
    """The decisions before the first repeat: error rates, and the maximum number of repeats.

    `launches` are planned for each benchmark, `cap` replaces them. `trials` are the steps so far of each benchmark, and of the
    run under an empty name. A failure rate of `bad_failure_rate` is a bad
    system. None: BAD_FAILURES times the promised rate. A good system, and a bad one, is exactly at its bounds.
    """

    alpha: float = 0.05
    beta: float = 0.10
    cap: int | None = None
    bad_failure_rate: float | None = None
    launches: Mapping[str, int] = field(default_factory=dict)
    trials: Mapping[str, Trials] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError for rates that are none, and a cap below three repeats or above LARGEST_CAP."""
        Risks(alpha=self.alpha, beta=self.beta)
        if self.cap is not None and not LEAST_LAUNCHES <= self.cap <= LARGEST_CAP:
            raise UsageError(f"--cap {self.cap}: give {LEAST_LAUNCHES} to {LARGEST_CAP} repeats")


def accept_so_far(
    criteria: Criteria, run: Summary, reference: Summary | None, plan: SequentialPlan, unlike: OtherWork | None = None
) -> Acceptance:
    """Return the state of each criterion. `unlike` is the work that differs from the reference.

    A reference's number counts as agreed, without its own spread. Numbers that are decided by the measured value (a spread
    between devices, a bound without a confidence) are those so far.
    """
    claims = max(1, len(criteria.bounds))

    def looks(bench: BenchCriteria) -> Looks:
        cap = plan.cap or min(plan.launches.get(bench.name, 0), LARGEST_CAP)
        return Looks(cap, Risks(alpha=plan.alpha / claims, beta=plan.beta))

    def failures(limit: float, bench: str, where: str) -> CriterionResult:
        check, note = _failures(limit, plan.trials.get(bench, Trials()), plan)
        notes.extend(line for line in note if line not in notes)
        return replace(check, bench=bench, where=where)

    # That a growing run has not ended is no reason against it.
    found = evaluate_criteria(criteria, structs.replace(run, is_ended=True), reference, unlike, looks)
    asked = {bench.name: bench for bench in criteria.benchmarks}
    measured = {bench.bench: bench for bench in run.benchmarks}
    checks, notes = list[CriterionResult](), [_error_rates(plan, claims)]
    for check in found.checks:
        bench = asked.get(check.bench)
        limit = criteria.failure_rate if bench is None else bench.failure_rate
        if check.criterion == "failure_rate" and limit is not None:
            checks.append(failures(limit, check.bench, check.where))
        elif check.criterion == "runs" and not run.is_ended and bench is not None and check.bench in measured:
            checks.append(_runs_so_far(check, bench, measured[check.bench]))
        else:
            checks.append(check)
    # `evaluate_criteria` says nothing of the steps of a benchmark that is not in the run.
    checks += [
        failures(bench.failure_rate, bench.name, bench.where)
        for bench in criteria.benchmarks
        if bench.name not in measured and bench.failure_rate is not None
    ]
    return replace(found, checks=tuple(checks), notes=tuple(notes))


def _runs_so_far(check: CriterionResult, criteria: BenchCriteria, bench: BenchSummary) -> CriterionResult:
    """Return the check that a benchmark runs. Steps that a growing run has still to begin are no reason against it."""
    if bench.counts["failed"] and criteria.failure_rate is None:
        return replace(check, verdict="FAIL", missing="")
    if not bench.counts["passed"] and criteria.is_required:
        return replace(check, verdict="INCONCLUSIVE", missing="its first repeat, which has not ended")
    return replace(check, verdict="PASS", missing="")


@dataclass(frozen=True, slots=True)
class Looks:
    """The decision of a bound's repeats, by Student's t after each from the third to the cap, until one decides.

    The value of a reference (`base`, else empty) is agreed. A bound without a confidence is decided by the measured value, as in
    `decide_bound`.
    """

    cap: int
    risks: Risks

    def __call__(self, values: Sequence[float], base: Sequence[float], wanted: BoundTarget) -> BoundDecision:
        if wanted.confidence is None:
            return decide_bound(values, base, wanted)
        if self.cap < LEAST_LAUNCHES:
            few = f"fewer than {LEAST_LAUNCHES} show no spread"
            why = f"repeats: at most {self.cap} were planned, and {few}. Allow more with --cap"
            return self._open(values, base, why)
        sign, agreed = (1 if wanted.is_minimum else -1), (geometric_mean(base) if base else 1.0)
        logs = [sign * math.log(value / agreed / wanted.value) for value in values[: self.cap]]
        verdict, used, missing = self._judge(logs)
        if verdict == "INCONCLUSIVE":
            return self._open(values[: self.cap], base, missing)
        decision = self._open(values[:used], base, "")
        done = "accepted" if verdict == "PASS" else "rejected"
        briefly = f"{done} after {used} of {self.cap}"
        return replace(
            decision, verdict=verdict, sure=f"{done} after {used} of at most {self.cap} repeats", bound=briefly
        )

    def _open(self, values: Sequence[float], base: Sequence[float], missing: str) -> BoundDecision:
        centre = geometric_mean(values) / (geometric_mean(base) if base else 1.0)
        sure = f"after {len(values)} of at most {self.cap} repeats"
        briefly = f"after {len(values)} of {self.cap}"
        return BoundDecision(verdict="INCONCLUSIVE", value=centre, sure=sure, bound=briefly, missing=missing)

    def _judge(self, logs: Sequence[float]) -> tuple[Verdict, int, str]:
        """Return the verdict on distances to the bound (above zero: kept), after how many repeats, and the missing evidence."""
        for used in range(LEAST_LAUNCHES, len(logs) + 1):
            if (verdict := self._look(mean(logs[:used]), stdev(logs[:used]), used)) is not None:
                return verdict, used, ""
        return "INCONCLUSIVE", len(logs), self._missing(logs)

    def _look(self, d: float, spread: float, used: int) -> Literal["PASS", "FAIL"] | None:
        error, at = spread / math.sqrt(used), used - LEAST_LAUNCHES
        if tail(d, error, used - 1) <= _chances(self.cap, self.risks.beta)[at]:
            return "PASS"
        return "FAIL" if tail(-d, error, used - 1) <= _chances(self.cap, self.risks.alpha)[at] else None

    def _missing(self, logs: Sequence[float]) -> str:
        """Return how many more repeats would decide if they went on as these did."""
        used = len(logs)
        if used < LEAST_LAUNCHES:
            return f"repeats: {used} of at least {LEAST_LAUNCHES}"
        if used >= self.cap:
            return f"nothing: all {self.cap} agreed repeats were measured, and they do not show that it is kept"
        d, spread = mean(logs), stdev(logs)
        for more in range(used + 1, self.cap + 1):
            if self._look(d, spread, more) is not None:
                return (
                    f"repeats: about {more - used} more of {self.cap - used} left would decide, if they are like these"
                )
        return f"repeats: the {self.cap - used} that are left would not decide, if they are like these"


@lru_cache(maxsize=64)
def _chances(cap: int, rate: float) -> tuple[float, ...]:
    """Return for each look, from the third repeat to the cap, the one-sided p at or below which it decides."""
    bounds = spending_bounds([used / cap for used in range(LEAST_LAUNCHES, cap + 1)], SHARE_SPENT * rate)
    return tuple(map(normal_tail, bounds))


def _failures(limit: float, trials: Trials, plan: SequentialPlan) -> tuple[CriterionResult, list[str]]:
    """Check the failed steps, and add the true rates of the test."""
    used, failed = len(trials.failed), sum(trials.failed)
    found = CriterionResult(
        criterion="failure_rate",
        verdict="PASS" if not failed else "FAIL",
        requirement="no failed step",
        measured=f"{failed} of {used} so far",
        value=failed / used if used else None,
    )
    if not limit:
        missing = "the first step"
        return (found if used else replace(found, verdict="INCONCLUSIVE", missing=missing)), []
    bad = BAD_FAILURES * limit if plan.bad_failure_rate is None else plan.bad_failure_rate
    most = max(1, trials.planned, used)
    test = FailureTest(good=limit, bad=bad, risks=Risks(alpha=plan.alpha, beta=plan.beta, cap=most))
    decision = test.decide(trials.failed)
    found = replace(
        found, verdict="INCONCLUSIVE", requirement=f"at most {limit:.2%} of the steps failed, against {bad:.2%}"
    )
    note = _failure_rates(test, most)
    if decision.is_at_cap:
        missing = f"nothing that this run could give: {most} steps are too few to tell {limit:.2%} from {bad:.2%}"
        return replace(found, missing=missing), [note]
    if decision.ending is None:
        ways = ((decision.until_accepted, "pass would accept it"), (decision.until_rejected, "fail would reject it"))
        named = [f"{count} more that {word}" for count, word in ways if count is not None]
        missing = f"steps: {' or '.join(named) or f'the {most - used} that are left cannot decide it'}"
        return replace(found, missing=missing), [note]
    verdict: Verdict = "PASS" if decision.ending == "accept" else "FAIL"
    how = f"{'accepted' if verdict == 'PASS' else 'rejected'} after {decision.used}"
    return replace(found, verdict=verdict, measured=f"{found.measured}, {how}"), [note]


def _failure_rates(test: FailureTest, most: int) -> str:
    """Return the true rates of a test of this many steps, where undecided at the last step stays undecided."""
    good, bad = test.exact(test.good), test.exact(test.bad)
    undecided = 1 - good.reject - good.accept
    return (
        f"failures: a system of which {test.good:.2%} of the steps fail is rejected in {good.reject:.1%} of all runs, "
        f"and a system of which {test.bad:.2%} fail is accepted in {bad.accept:.1%}. "
        f"{most} steps do not decide on the former in {undecided:.1%}"
    )


def _error_rates(plan: SequentialPlan, claims: int) -> str:
    each = "" if claims == 1 else f" ({plan.alpha / claims:.2%} by each of {claims} bounds)"
    return (
        f"error rates: a system exactly at its bounds is rejected in at most {plan.alpha:.4g} of all runs{each}, and accepted "
        f"in at most {plan.beta:.4g}. Every criterion is checked after each repeat, from the third to the last that is planned"
    )
