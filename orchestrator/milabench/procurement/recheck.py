"""The recheck of an installed system: each benchmark's rate today relative to its rate at acceptance.

EuroHPC hosting agreement, clause "Performance Testing": the same benchmarks at least every two years, each with at least 90 % of
the rate measured after installation. The point ratio decides: the clause names no statistics. The one-sided bounds at 95 % say
how sure it is. They carry the spread of the repeats of both runs, as any comparison does.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from milabench.acceptance.criteria import BenchCriteria
from milabench.acceptance.evaluate import BenchEvaluation, replicate_values, unended, units_of
from milabench.analysis.acceptance_model import Acceptance, CriterionResult
from milabench.analysis.case_sets import cases_of, differing
from milabench.analysis.comparison_model import System
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.summary_model import BenchSummary, some_names
from milabench.analysis.system_diff import difference_line, differing_suite, unknown_work, work_of
from milabench.analysis.throughput import Direction
from milabench.analysis.uncertainty import NO_ALLOWANCE, Allowance
from milabench.errors import NothingSelected
from milabench.procurement.uncertainty import UncertainValue, combine

_DAYS_A_YEAR = 365.25
_CONFIDENCE = 0.95  # of each of the one-sided bounds
_DIGEST = 16  # hexadecimal digits that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckRatio:
    """A benchmark's rate today over its rate after installation. The point decides, the bounds show its certainty.

    `ratio` above 1: better now. `lower` and `upper` are one-sided bounds at 95 %, None where either run has a single repeat.
    """

    name: str
    ratio: float
    limit: float
    lower: float | None = None
    upper: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the ratio reaches the limit. Rounding of logarithms is ignored."""
        return self.ratio >= self.limit or math.isclose(self.ratio, self.limit, rel_tol=1e-12)


def recheck_ratio(
    name: str,
    installed: UncertainValue,
    now: Sequence[float],
    *,
    limit: float = 0.9,
    direction: Direction = "higher",
    allowance: Allowance = NO_ALLOWANCE,
) -> RecheckRatio:
    """Return the recheck of a benchmark. Each benchmark has to reach the limit. A mean over them is not used.

    `installed` is a constant where it was agreed. The ratio is of geometric means, as in `compare`: a run compared with
    itself is exactly 1. The variances of both means of logarithms add up, with Satterthwaite's degrees of freedom.
    `allowance` is the possible cost of disturbances that only one of the runs shows.
    """
    sign = -1 if direction == "lower" else 1
    today = UncertainValue.of_launches(now)
    ratio = (today.value / installed.value) ** sign
    both = combine(ratio, [(today, sign), (installed, -sign)]).log_estimate
    if both is None:
        return RecheckRatio(name=name, ratio=ratio, limit=limit)
    lower, upper = replace(both, allowance=allowance).ratio_interval(2 * _CONFIDENCE - 1)
    return RecheckRatio(name=name, ratio=ratio, limit=limit, lower=lower, upper=upper)


def check_again(now: System, then: System, limit: float, allow: Mapping[str, Sequence[str]]) -> Acceptance:
    """Return the verdict on the run of today: of each benchmark that has a number in the run of then.

    `limit` is the minimum share of the value of then, `allow` has the warnings that are accepted of each benchmark. A benchmark
    is checked by all of its instances together: a device that is gone counts. Raises NothingSelected where the run of then has no
    number.
    """
    numbers = {bench.bench: bench for bench in then.summary.benchmarks if replicate_values(bench, "system")}
    if not numbers:
        raise NothingSelected(f"{then.name}: has no number of any benchmark. Give the run that was accepted")
    today = {bench.bench: bench for bench in now.summary.benchmarks}
    both = [then, now]
    changed = {
        name: line
        for name in numbers
        if name in today and (line := unknown_work(both, name) or differing_suite(both, name))
    }
    results = [
        _Bench(name, bench, today.get(name), limit, tuple(allow.get(name, ())), changed.get(name, ""))
        for name, bench in numbers.items()
    ]
    outcomes = [result.outcome for result in results if not result.other_work]
    ratios = [outcome for outcome in outcomes if isinstance(outcome, RecheckRatio)]
    return Acceptance(
        title=f"recheck: at least {limit:g} x {then.name}, benchmark by benchmark",
        run=now.name,
        reference=then.name,
        file="",
        accepted_on=then.summary.created,
        checks=(
            *unended(now.summary, "run"),
            *unended(then.summary, "reference"),
            _suite_check(now, then, [name for name in numbers if name in today], changed),
            *(check for result in results for check in result.checks()),
        ),
        notes=(
            *_drift(now, then, ratios),
            f"differences since then: {difference_line([then, now], [r.name for r in ratios])}",
        ),
    )


def _suite_check(now: System, then: System, benches: Sequence[str], changed: Mapping[str, str]) -> CriterionResult:
    """Check whether both runs record suites with the same digest."""
    unknown = [system.name for system in (then, now) if not all(work_of(system, bench) for bench in benches)]
    result = CriterionResult(criterion="suite", verdict="PASS", requirement="the suite of then", measured="")
    if unknown:
        missing = f"the suite of {unknown[0]}: give the run itself or its bundle, which contain it"
        return replace(result, verdict="INCONCLUSIVE", measured="not recorded", missing=missing)
    if changed:
        bench, line = next(iter(changed.items()))
        more = f" (and {some_names(list(changed)[1:])})" if len(changed) > 1 else ""
        missing = "a run of the same suite, with its locks: the capsule that it was installed from has both"
        return replace(result, verdict="INCONCLUSIVE", measured=f"differs: {bench}: {line}{more}", missing=missing)
    works = {bench: dict(work_of(now, bench)) for bench in benches}
    digest = hashlib.sha256(json.dumps(works, sort_keys=True).encode()).hexdigest()
    return replace(result, measured=f"the same: sha256 {digest[:_DIGEST]}")


@dataclass(frozen=True, slots=True)
class _Bench:
    """A benchmark, then and today. `changed` are the changes in its suite, empty without any."""

    name: str
    then: BenchSummary
    now: BenchSummary | None
    limit: float
    allow: tuple[str, ...]
    changed: str

    @property
    def other_work(self) -> str:
        """Why the two cannot be compared although both have a number. Empty where they can.

        All instances count together, so a device that is gone is in the ratio. An added device would hide slower ones.
        """
        if self.changed:
            return f"the same work as then: {self.changed}"
        if self.now is None:
            return ""
        counts = (
            ("nodes", self.then.nodes, self.now.nodes),
            ("devices", self.then.ngpu or self.then.instances, self.now.ngpu or self.now.instances),
        )
        more = (f"as many {of} as then: {now}, and {then} then" for of, then, now in counts if now > then > 0)
        return next(more, "")

    @property
    def outcome(self) -> RecheckRatio | tuple[str, str]:
        """Its ratio today, or what was found instead and what is missing for one."""
        values = [] if self.now is None else replicate_values(self.now, "system")
        if self.now is None or not values:
            return "no number", "a measurement of all of its instances"
        found = f"in {units_of(self.now, 'system')}"
        if self.now.units != self.then.units:
            return found, f"the same units: it was in {self.then.units} then"
        if self.then.direction == "none":
            return found, "a number of which it is known whether more is better"
        if cases := differing(cases_of(self.then.metrics), cases_of(self.now.metrics)):
            return found, f"the same cases as then: {cases}"
        installed = UncertainValue.of_launches(replicate_values(self.then, "system"), self.then.units, self.name)
        moved = self.now.allowance.one_sided.over(self.then.allowance.one_sided)
        if self.then.direction == "lower":
            moved = Allowance(*reversed(moved))
        return recheck_ratio(
            self.name, installed, values, limit=self.limit, direction=self.then.direction, allowance=moved
        )

    def checks(self) -> Sequence[CriterionResult]:
        criteria = BenchCriteria(name=self.name, allow=self.allow)
        evaluation = BenchEvaluation(criteria, self.now, self.then, 1)
        runs = tuple(evaluation.checks())
        if self.now is None or any(check.verdict == "FAIL" for check in runs):
            return runs
        ratio, asked = self.outcome, f"at least {self.limit:g} x then"
        undecided = CriterionResult(
            bench=self.name, criterion="recheck", verdict="INCONCLUSIVE", requirement=asked, measured=""
        )
        if not isinstance(ratio, RecheckRatio):
            found, missing = ratio
            return (*runs, replace(undecided, measured=found, missing=missing))
        result = replace(
            undecided,
            value=ratio.ratio,
            measured=_measured(ratio, *(len(replicate_values(run, "system")) for run in (self.now, self.then))),
        )
        if ratio.lower is not None and ratio.upper is not None:
            briefly = f"{ratio.ratio:.4g} x then, lower bound {ratio.lower:.4g}"
            result = replace(result, bounds=(ratio.lower, ratio.upper), briefly=briefly)
        if other := self.other_work:
            return (*runs, replace(result, missing=other))
        judged = replace(result, verdict="PASS" if ratio.is_kept else "FAIL")
        return (*runs, evaluation.trusted_on_both(self.now, judged, is_relative=True))


def _measured(ratio: RecheckRatio, launches: int, then: int) -> str:
    if ratio.lower is None:
        whose = "" if launches == 1 else " then"
        return f"{ratio.ratio:.4g} x then, a single repeat{whose} shows no spread"
    return f"{ratio.ratio:.4g} x then, at least {ratio.lower:.4g} at 0.95 confidence, n={launches}, {then} then"


def _drift(now: System, then: System, ratios: Sequence[RecheckRatio]) -> Sequence[str]:
    """Return the sentences on the drift of the system since then. Not used for the decision."""
    if not ratios:
        return ()
    index = geometric_mean([ratio.ratio for ratio in ratios])
    least = min(ratios, key=lambda ratio: ratio.ratio)
    slower = [ratio.name for ratio in ratios if ratio.upper is not None and ratio.upper < 1]
    days = _days(then.summary.created, now.summary.created)
    during = f" in {days} days" if days else ""
    a_year = f", which is {index ** (_DAYS_A_YEAR / days) - 1:+.2%} a year" if days and days >= _DAYS_A_YEAR / 4 else ""
    return (
        f"drift{during}: {index - 1:+.2%} in the geometric mean of {len(ratios)} benchmarks{a_year}. "
        f"The lowest is {least.name} with {least.ratio:.4g} x then. Slower than then at 0.95 confidence: "
        f"{some_names(slower) or 'none'}",
        "each benchmark must reach the limit by its own ratio. The mean and the bounds are not used for the decision",
    )


def _days(then: str, now: str) -> int | None:
    """Return the days from an ISO time to another. None where either is no time, or they are not in this order."""
    try:
        days = (date.fromisoformat(now[:10]) - date.fromisoformat(then[:10])).days
    except ValueError:
        return None
    return days if days > 0 else None
