"""Criteria and a run's summary -> PASS, FAIL or INCONCLUSIVE, criterion by criterion, with missing evidence (criteria.md).

A run is accepted when every criterion is shown to hold at its confidence: a system that misses any criterion passes no
more often than 1 - confidence, however many there are (intersection-union test, Berger 1982). Failure of a criterion is
claimed at the confidence corrected for the number of claims, so that a good system is not rejected because there are
many criteria.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from milabench.acceptance.bounds import BoundDecision, BoundTarget, CurveNumber, decide_bound, decide_quantile
from milabench.acceptance.criteria import BenchCriteria, Bound, Criteria, Quantity, ServingCriterion
from milabench.analysis.acceptance_model import Acceptance, CriterionResult, Verdict
from milabench.analysis.case_sets import cases_of, differing
from milabench.analysis.comparison_model import System
from milabench.analysis.energy_per_item import energies, item_of, joules_per_item
from milabench.analysis.json_codec import finite_number
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.serving_model import AREA, ServingCurve
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.system_diff import differing_requests, differing_work, unknown_work
from milabench.seams import handler
from milabench.shown import grouped

OtherWork = Mapping[str, tuple[str, str]]
"""Differences of a benchmark's work from the reference, by its name: for its rate, and for the points of its sweep."""
Decide = Callable[[Sequence[float], Sequence[float], BoundTarget], BoundDecision]
"""Decides on the numbers of repeats, in their order, and a reference's (else none), as `decide_bound` does."""


SAME_WORK = ("", "")
_THE_SAME_WORK = "the same work as the reference (--across decides all the same)"


def other_work(run: System, reference: System) -> OtherWork:
    """Return the differences of benchmarks' work from the reference's, or that arguments are not recorded."""
    found: dict[str, tuple[str, str]] = {}
    for name, bench in run.by_name.items():
        other, both = reference.by_name.get(name), [reference, run]
        is_served = bench.serving is not None and other is not None and other.serving is not None
        unknown = unknown_work(both, name)
        found[name] = (
            unknown or differing_work(both, name, is_served=is_served),
            unknown or differing_requests(both, name),
        )
    return found


def decided_across(acceptance: Acceptance, unlike: OtherWork) -> Acceptance:
    """Return a verdict that other work than the reference's has not kept from being given, with notes that say so."""
    lines = {name: rate or points for name, (rate, points) in unlike.items()}
    asked = {check.bench for check in acceptance.checks}
    notes = [
        f"{name}: does other work than the reference: {line}" for name, line in lines.items() if line and name in asked
    ]
    return replace(acceptance, notes=(*acceptance.notes, *notes))


def evaluate_criteria(
    criteria: Criteria,
    run: Summary,
    reference: Summary | None = None,
    unlike: OtherWork | None = None,
    decide_for: Callable[[BenchCriteria], Decide] = lambda _: decide_bound,
) -> Acceptance:
    """Check a run against criteria. `reference` is the run of `x reference`, `unlike` the differences of its work.

    `decide_for` returns what decides on the bounds of a benchmark.
    """
    claims = len(criteria.bounds)
    measured = {bench.bench: bench for bench in run.benchmarks}
    expected = {bench.bench: bench for bench in reference.benchmarks} if reference is not None else {}
    checks = [*unended(run, "run"), *unended(reference, "reference")]
    if criteria.failure_rate is not None:
        total = sum((Counter(bench.counts) for bench in run.benchmarks), Counter[str]())
        checks.append(_failure_check(total, criteria.failure_rate))
    for bench in criteria.benchmarks:
        own, beside = measured.get(bench.name), expected.get(bench.name)
        work = (unlike or {}).get(bench.name, SAME_WORK)
        evaluation = BenchEvaluation(bench, own, beside, claims, decide_for(bench), work)
        checks += [replace(check, where=check.where or bench.where) for check in evaluation.checks()]
    return Acceptance(
        title=criteria.title,
        run=run.run,
        reference=None if reference is None else reference.run,
        file=criteria.file,
        checks=tuple(checks),
        accepted_on=run.created,
    )


def unended(summary: Summary | None, whose: str) -> list[CriterionResult]:
    """Return the check that a run has ended, where it has not."""
    if summary is None or summary.is_ended:
        return []
    missing = "its end: wait for it, or `milabench resume` it"
    asked, found = f"a {whose} that has ended", "it has not"
    verdict: Verdict = "INCONCLUSIVE"
    return [CriterionResult(criterion="ended", verdict=verdict, requirement=asked, measured=found, missing=missing)]


def _furthest_apart(bench: BenchSummary) -> str:
    """Return the devices or nodes of a benchmark with the lowest and the highest rate: one of them is the cause."""
    by_slot = grouped((each.slot.removeprefix("local/"), each.throughput.value) for each in bench.processes)
    means = sorted((geometric_mean(values), slot) for slot, values in by_slot.items())
    (least, slowest), (greatest, fastest) = means[0], means[-1]
    return f", from {least:.6g} {bench.units} on {slowest} to {greatest:.6g} on {fastest}"


def replicate_values(bench: BenchSummary, quantity: Quantity) -> list[float]:
    """Return a number for each independent replicate, in order: of the instances launched together the geometric mean.

    A repeat counts only where all of its instances have a number: fast and slow devices must not weigh differently in it.
    Nothing follows from processes that measured in different units.
    """
    if bench.perf is None and quantity in ("rate", "system"):
        return []
    times = 1 / bench.instances if bench.direction == "lower" and bench.instances else bench.instances
    launches: dict[int, list[float]] = {}
    step_energies = energies(bench)
    first_steps = [(m.get("step"), m.get("value")) for m in bench.metrics if m.get("metric") == "first_step"]
    for process in bench.processes:
        value: float | None
        match quantity:
            case "rate":
                value = process.throughput.value
            case "system":
                value = process.throughput.value * times
            case "energy":
                value = joules_per_item(process, step_energies)
            case "first_step":
                # The slowest of its ranks, each of which may have a step of its own.
                seconds = [finite_number(value) for step, value in first_steps if step in process.steps]
                value = max(filter(None, seconds), default=None)
            case "memory_peak":
                value = bench.memory_peak_mib
            case _:
                assert_never(quantity)
        if value is not None and value > 0:
            launches.setdefault(process.repeat, []).append(value)
    return [geometric_mean(members) for _, members in sorted(launches.items()) if len(members) == bench.instances]


def units_of(bench: BenchSummary, quantity: Quantity) -> str:
    """Return the units of the numbers of `replicate_values`."""
    units = {"energy": f"J/{item_of(bench.units)}", "first_step": "s", "memory_peak": "MiB"}
    return units.get(quantity, bench.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundNumbers:
    """The numbers of repeats that a bound is about, and the reference's where it is relative; or what is `missing` of them."""

    values: Sequence[float] = ()
    base: Sequence[float] = ()
    units: str = ""
    measured: str = "no number"
    missing: str = ""


def bound_numbers(
    bench: BenchSummary, reference: BenchSummary | None, quantity: Quantity, bound: Bound, work: str = ""
) -> BoundNumbers:
    """Return the numbers of a bound. `work` is how the benchmark's work differs from the reference's."""
    values, units = replicate_values(bench, quantity), units_of(bench, quantity)
    if not values:
        return BoundNumbers(missing=f"a measurement of its {quantity}")
    found = BoundNumbers(values=values, units=units, measured=f"{geometric_mean(values):.6g} {units}")
    if not bound.is_relative:
        missing = f"the same units: {bound.units} is asked for"
        return found if units == bound.units else replace(found, measured=f"in {units or 'no units'}", missing=missing)
    if reference is None:
        return replace(found, missing="this benchmark in the reference")
    if work:
        return replace(found, missing=f"{_THE_SAME_WORK}: {work}")
    if units != (expected := units_of(reference, quantity)):
        return replace(found, measured=f"in {units}", missing=f"the same units: the reference is in {expected}")
    if apart := differing(cases_of(reference.metrics), cases_of(bench.metrics)):
        return replace(found, missing=f"the same cases as the reference: {apart}")
    base = replicate_values(reference, quantity)
    return replace(found, base=base) if base else replace(found, missing="its number in the reference")


def requirement_text(bound: Bound, quantity: Quantity = "rate", *, is_minimum: bool) -> str:
    """Return what a bound requires, with its quantity where that is not in the name of the criterion."""
    of = "" if quantity in ("rate", "energy") else f" of {quantity}"
    return f"{'at least' if is_minimum else 'at most'} {bound}{of}"


@dataclass(frozen=True, slots=True)
class BenchEvaluation:
    """A benchmark's criteria, and its numbers in the run and the reference.

    `claims` is the number of all bounds, each decided by `decide`. `work` are the differences from the reference, for
    the rate and for the points of a sweep.
    """

    criteria: BenchCriteria
    run: BenchSummary | None
    reference: BenchSummary | None
    claims: int
    decide: Decide = decide_bound
    work: tuple[str, str] = SAME_WORK

    def checks(self) -> Iterable[CriterionResult]:
        if self.run is None:
            if self.criteria.is_required:
                missing = "this benchmark: run it"
                yield self._check("runs", "INCONCLUSIVE", "to be in the run", "it is not", missing=missing)
            return
        yield self._runs(self.run)
        yield from self._wrong(self.run)
        if self.criteria.failure_rate is not None:
            failures = _failure_check(self.run.counts, self.criteria.failure_rate)
            yield replace(failures, bench=self.criteria.name)
        for name, quantity, bound in self.criteria.of_quantities:
            yield self._bound(self.run, name, quantity, bound)
        for one, is_minimum, bound in self.criteria.of_curve:
            yield self._of_curve(self.run, one, bound, is_minimum=is_minimum)
        if self.criteria.device_spread is not None:
            yield self._device_spread(self.run, self.criteria.device_spread)

    def _check(self, criterion: str, verdict: Verdict, requirement: str, measured: str, **rest: Any) -> CriterionResult:
        about = {"bench": self.criteria.name, "criterion": criterion, "verdict": verdict, **rest}
        return CriterionResult(requirement=requirement, measured=measured, **about)

    def _target(self, bench: BenchSummary, bound: Bound, confidence: float | None, *, is_minimum: bool) -> BoundTarget:
        """Return the target of the numbers of a benchmark."""
        sides = (bench, self.reference if bound.is_relative else None)
        return BoundTarget(
            value=bound.value,
            is_minimum=is_minimum,
            confidence=confidence,
            # Bonferroni's correction, for failing only: see the head of this module.
            to_fail=1 - (1 - (confidence or 0.0)) / max(1, self.claims),
            of_launches=max(side.confidence for side in sides if side is not None),
        )

    def _runs(self, bench: BenchSummary) -> CriterionResult:
        counts = bench.counts
        others = [f"{counts[name]} {name}" for name in counts if counts[name] and name not in ("planned", "passed")]
        steps = ", ".join([f"{counts['passed']} of {counts['planned']} steps passed", *others])
        requirement = "every step passes"
        if bench.outcome == "failed" and self.criteria.failure_rate is None:
            why = "; ".join(f"{failure.name}: {failure.why}" for failure in bench.failures[:3])
            return self._check("runs", "FAIL", requirement, f"{steps} ({why})", briefly=steps)
        if bench.outcome == "passed" or (counts["passed"] and self.criteria.failure_rate is not None):
            return self._check("runs", "PASS", requirement, steps)
        if not self.criteria.is_required and bench.outcome == "skipped":
            return self._check("runs", "PASS", "every step passes, if it is run", steps)
        skips = "; ".join(dict.fromkeys(skip.detail for skip in bench.skipped))
        missing = f"its run{f' ({skips})' if skips else ''}"
        return self._check("runs", "INCONCLUSIVE", requirement, steps, missing=missing)

    def _wrong(self, bench: BenchSummary) -> Iterable[CriterionResult]:
        """Check the steps with wrong results, where there are any or some may be."""
        wrong = [failure for failure in bench.failures if failure.why == "wrong"]
        if not wrong and not self.criteria.wrong:
            return
        verdict: Verdict = "PASS" if len(wrong) <= self.criteria.wrong else "FAIL"
        found = "; ".join(f"{failure.name}: {failure.detail}" for failure in wrong[:3])
        steps = f"{len(wrong)} of {bench.counts['planned']} steps"
        measured = steps + (f" ({found})" if found else "")
        yield self._check("wrong", verdict, f"at most {self.criteria.wrong} wrong results", measured, briefly=steps)

    def _device_spread(self, bench: BenchSummary, limit: float) -> CriterionResult:
        requirement = f"at most {f'{limit:.3g}' if limit < 0.001 else f'{limit:.1%}'} between devices"
        spread = bench.spread_devices
        if spread is None:
            missing = "a second device: this number needs several"
            return self._check("device_spread", "INCONCLUSIVE", requirement, "not known", missing=missing)
        verdict: Verdict = "PASS" if spread <= limit else "FAIL"
        briefly = f"{spread:.2%} over {bench.instances} devices"
        measured = briefly + _furthest_apart(bench)
        check = self._check("device_spread", verdict, requirement, measured, value=spread, briefly=briefly)
        return self._trusted(bench, check)

    def _bound(self, bench: BenchSummary, name: str, quantity: Quantity, bound: Bound) -> CriterionResult:
        requirement = requirement_text(bound, quantity, is_minimum=name == "minimum")
        found = bound_numbers(bench, self.reference, quantity, bound, self.work[0])
        asked = self._check(name, "INCONCLUSIVE", requirement, found.measured, missing=found.missing, where=bound.where)
        if found.missing:
            return asked
        # There is one peak for all replicates, so no spread from which a confidence could follow.
        confidence = None if quantity == "memory_peak" else self.criteria.confidence
        wanted = self._target(bench, bound, confidence, is_minimum=name == "minimum")
        if quantity in ("rate", "system"):
            own, other = bench.allowance, self.reference if bound.is_relative else None
            wanted = replace(wanted, allowance=own if other is None else own.over(other.allowance))
        return self._decided(bench, asked, found, wanted)

    def _of_curve(
        self, bench: BenchSummary, one: ServingCriterion, bound: Bound, *, is_minimum: bool
    ) -> CriterionResult:
        """Check a number of a curve. A number without a unit is a share or a count, decided by its measured value."""
        requirement = requirement_text(bound, is_minimum=is_minimum)
        asked = self._check(one.name, "INCONCLUSIVE", requirement, "", where=bound.where)
        found = _curve_number(bench.serving, one)
        if found.missing:
            return replace(asked, measured=found.measured, missing=found.missing)
        asked, base = replace(asked, measured=f"{found.value:.6g} {found.units}".rstrip()), CurveNumber()
        if bound.is_relative:
            reference = None if self.reference is None else self.reference.serving
            if one.metric == AREA and _points_in_area(reference) != _points_in_area(bench.serving):
                return replace(asked, missing="the reference's area over the same points")
            base = _curve_number(reference, one)
            if self.work[1]:
                return replace(asked, missing=f"{_THE_SAME_WORK}: {self.work[1]}")
            if base.missing or not base.value:
                return replace(asked, missing=f"its number in the reference ({base.missing or 'it is 0 there'})")
        wanted = self._target(bench, bound, self.criteria.confidence, is_minimum=is_minimum)
        if found.units:
            decide = self._decide_number(found, base, bound)
            if decide is None:
                missing = "few-requests: enough requests in each repeat, as each is decided on its own"
                return replace(asked, missing=missing)
            numbers = BoundNumbers(values=found.values, base=base.values, units=found.units)
            return replace(self, decide=decide)._decided(bench, asked, numbers, wanted)
        value = found.value / base.value if bound.is_relative else found.value
        verdict: Verdict = "PASS" if wanted.is_kept_by(value) else "FAIL"
        measured = f"{value:.4g} x reference" if bound.is_relative else found.measured or f"{value:.6g}"
        check = replace(asked, verdict=verdict, measured=measured, value=value)
        return self.trusted_on_both(bench, check, is_relative=bound.is_relative)

    def _decide_number(self, found: CurveNumber, base: CurveNumber, bound: Bound) -> Decide | None:
        """Return the decision rule for a number of a curve.

        None for a quantile with too few requests for a test of single repeats.
        """
        quantile, is_whole = found.quantile, self.decide is decide_bound
        if quantile is None or (is_whole and bound.is_relative and base.quantile is None):
            return self.decide
        if is_whole:
            return lambda _, __, wanted: decide_quantile(quantile, base.quantile, wanted)
        return self.decide if quantile.launches else None

    def _decided(
        self, bench: BenchSummary, asked: CriterionResult, found: BoundNumbers, wanted: BoundTarget
    ) -> CriterionResult:
        """Check the repeats' numbers, or their ratio to the reference's."""
        decision = self.decide(found.values, found.base, wanted)
        shown = f"{decision.value:.4g} x reference" if found.base else f"{decision.value:.6g} {found.units}"
        check = replace(
            asked,
            verdict=decision.verdict,
            measured=", ".join(filter(None, (shown, decision.sure))),
            missing=decision.missing,
            value=decision.value,
            bounds=decision.bounds,
            briefly=", ".join(filter(None, (shown, decision.bound or decision.sure))),
        )
        return self.trusted_on_both(bench, check, is_relative=bool(found.base))

    def trusted_on_both(self, bench: BenchSummary, check: CriterionResult, *, is_relative: bool) -> CriterionResult:
        check = self._trusted(bench, check)
        if self.reference is None or not is_relative:
            return check
        return self._trusted(self.reference, check, "the reference's ")

    def _trusted(self, bench: BenchSummary, check: CriterionResult, whose: str = "") -> CriterionResult:
        """Return the check, undecided when its number has a warning that the criteria do not allow."""
        doubts = [words for doubt, words in bench.doubt_words.items() if doubt not in self.criteria.allow]
        if check.verdict == "INCONCLUSIVE" or (bench.validity != "invalid" and not doubts):
            return check
        why = ", ".join(doubts) or "no reason given"
        missing = f"{whose or 'its '}number is {bench.validity} ({why}): measure it again, or `allow` the reason"
        return replace(check, verdict="INCONCLUSIVE", missing=missing)


def _failure_check(counts: Mapping[str, int], limit: float) -> CriterionResult:
    """Check the share of planned steps that did not pass. A step that never ended did not."""
    planned = counts.get("planned", 0) - counts.get("skipped", 0)
    failed = sum(counts.get(name, 0) for name in ("failed", "cancelled", "missing"))
    undecided = CriterionResult(
        criterion="failure_rate",
        verdict="INCONCLUSIVE",
        requirement=f"at most {limit:.2%} of the steps failed" if limit else "no failed step",
        measured="no step",
        missing="steps",
    )
    if not planned:
        return undecided
    share = failed / planned
    verdict: Verdict = "PASS" if share <= limit else "FAIL"
    return replace(undecided, verdict=verdict, measured=f"{failed} of {planned}", missing="", value=share)


def _curve_number(curve: ServingCurve | None, asked: ServingCriterion) -> CurveNumber:
    if curve is None:
        return CurveNumber(measured="no curve", missing="a sweep over a server")
    number: CurveNumber = handler("criteria on curves")(curve, asked)
    return number


def _points_in_area(curve: ServingCurve | None) -> frozenset[str]:
    return frozenset() if curve is None else curve.points_in_area
