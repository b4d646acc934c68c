"""Criteria and a run's summary -> PASS, FAIL or INCONCLUSIVE, criterion by criterion, with what is missing (docs/acceptance.md).

A run is accepted when every criterion is shown to hold at its confidence: a system that misses one of them passes no more often
than 1 - confidence, however many there are (intersection-union test, Berger 1982). Failing one is claimed at the confidence
corrected for the number of claims, so that a good system is not rejected because many things were asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from milabench.acceptance.bounds import BoundTarget, Verdict, decide_bound
from milabench.acceptance.criteria import BenchCriteria, Bound, Criteria, Quantity
from milabench.analysis.cases import cases_of, differing
from milabench.analysis.efficiency import energies, item_of, joules_per_item
from milabench.analysis.json_codec import finite_number
from milabench.analysis.spread import geometric_mean
from milabench.analysis.summary_model import BenchSummary, Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionResult:
    """One criterion: what was asked, what was found, the verdict; `missing` is what an INCONCLUSIVE one lacks.

    `bench` is empty for what is asked of the run as a whole. `value` is in the units that `asked` names, or the ratio to the
    reference; `bounds` are its one-sided bounds, the second at the corrected confidence. `where` is its place in the file.
    """

    bench: str
    criterion: str
    verdict: Verdict
    asked: str
    found: str
    missing: str = ""
    value: float | None = None
    bounds: tuple[float, float] | None = None
    where: str = ""

    def to_json(self) -> dict[str, Any]:
        """For the document."""
        return {
            "bench": self.bench or None,
            "criterion": self.criterion,
            "verdict": self.verdict,
            "asked": self.asked,
            "found": self.found,
            "missing": self.missing,
            "value": self.value,
            "bounds": None if self.bounds is None else list(self.bounds),
            "where": self.where,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The verdict on a run, criterion by criterion."""

    title: str
    run: str
    reference: str | None
    file: str
    checks: tuple[CriterionResult, ...]

    @property
    def verdict(self) -> Verdict:
        """FAIL when anything failed, INCONCLUSIVE when anything could not be decided, else PASS."""
        for verdict in ("FAIL", "INCONCLUSIVE"):
            if any(check.verdict == verdict for check in self.checks):
                return verdict
        return "PASS"

    def to_json(self) -> dict[str, Any]:
        """`accept --format json`."""
        return {
            "schema": 1,
            "title": self.title,
            "run": self.run,
            "reference": self.reference,
            "criteria": self.file,
            "verdict": self.verdict,
            "checks": [check.to_json() for check in self.checks],
        }


def evaluate_criteria(criteria: Criteria, run: Summary, reference: Summary | None = None) -> Acceptance:
    """Hold a run against criteria; `reference` is what `x reference` means."""
    claims = sum(
        bound is not None for one in criteria.benchmarks for bound in (one.minimum, one.maximum, one.energy)
    )  # fmt: skip
    found = {bench.bench: bench for bench in run.benchmarks}
    known = {bench.bench: bench for bench in reference.benchmarks} if reference is not None else {}
    checks: list[CriterionResult] = []
    for summary, whose in ((run, "run"), (reference, "reference")):
        if summary is not None and not summary.is_ended:
            checks.append(_not_ended(whose))
    if criteria.failure_rate is not None:
        checks.append(_run_failures(criteria.failure_rate, run))
    for asked in criteria.benchmarks:
        judged = _Bench(asked, found.get(asked.name), known.get(asked.name), claims)
        checks += [replace(check, where=check.where or asked.where) for check in judged.checks()]
    return Acceptance(
        title=criteria.title,
        run=run.run,
        reference=None if reference is None else reference.run,
        file=criteria.file,
        checks=tuple(checks),
    )


def replicate_values(bench: BenchSummary, quantity: Quantity) -> list[float]:
    """A number for each independent replicate: of the instances that were launched together the geometric mean.

    A launch counts only where all of its instances have a number: fast and slow devices must not weigh differently in it.
    Nothing follows from processes that measured in different units.
    """
    if bench.perf is None and quantity in ("rate", "system"):
        return []
    times = 1 / bench.instances if bench.direction == "lower" and bench.instances else bench.instances
    launches: dict[int, list[float]] = {}
    told_energies = energies(bench)
    for process in bench.processes:
        value: float | None
        match quantity:
            case "rate":
                value = process.throughput.value
            case "system":
                value = process.throughput.value * times
            case "energy":
                value = joules_per_item(process, told_energies)
            case "first_step":
                told = [_metric(bench, step, "first_step") for step in process.steps]
                value = max((one for one in told if one is not None), default=None)
            case "memory_peak":
                value = bench.memory_peak_mib
            case _:
                assert_never(quantity)
        if value is not None and value > 0:
            launches.setdefault(process.repeat, []).append(value)
    return [geometric_mean(members) for members in launches.values() if len(members) == bench.instances]


def units_of(bench: BenchSummary, quantity: Quantity) -> str:
    """What the numbers of `replicate_values` are in."""
    match quantity:
        case "rate" | "system":
            return bench.units
        case "energy":
            return f"J/{item_of(bench.units)}"
        case "first_step":
            return "s"
        case "memory_peak":
            return "MiB"
        case _:
            assert_never(quantity)


@dataclass(frozen=True, slots=True)
class _Bench:
    """One benchmark's criteria, and what the run and the reference have of it."""

    asked: BenchCriteria
    run: BenchSummary | None
    reference: BenchSummary | None
    claims: int

    def checks(self) -> Iterable[CriterionResult]:
        if self.run is None:
            if self.asked.is_required:
                yield self._check(
                    "runs", "INCONCLUSIVE", "to be in the run", "it is not", missing="this benchmark: run it"
                )
            return
        yield self._runs(self.run)
        if self.asked.failure_rate is not None:
            yield self._failures(self.run, self.asked.failure_rate)
        for name, bound, is_minimum in (("minimum", self.asked.minimum, True), ("maximum", self.asked.maximum, False)):
            if bound is not None:
                yield self._bound(self.run, name, self.asked.of, bound, is_minimum)
        if self.asked.energy is not None:
            yield self._bound(self.run, "energy", "energy", self.asked.energy, False)
        if self.asked.device_spread is not None:
            yield self._device_spread(self.run, self.asked.device_spread)

    def _check(self, criterion: str, verdict: Verdict, asked: str, found: str, **more: Any) -> CriterionResult:
        return CriterionResult(
            bench=self.asked.name, criterion=criterion, verdict=verdict, asked=asked, found=found, **more
        )

    def _runs(self, bench: BenchSummary) -> CriterionResult:
        counts = bench.counts
        found = ", ".join(f"{counts[name]} {name}" for name in counts if counts[name] and name != "planned")
        told = f"of {counts['planned']} steps {found}"
        asked = "to pass"
        if bench.outcome == "failed" and self.asked.failure_rate is None:
            why = "; ".join(f"{one.step}: {one.why}" for one in bench.failures[:3])
            return self._check("runs", "FAIL", asked, f"{told} ({why})")
        if bench.outcome == "passed" or (counts["passed"] and self.asked.failure_rate is not None):
            return self._check("runs", "PASS", asked, told)
        if not self.asked.is_required and bench.outcome == "skipped":
            return self._check("runs", "PASS", "to pass if it is run", told)
        skips = "; ".join(dict.fromkeys(skip.detail for skip in bench.skipped))
        return self._check("runs", "INCONCLUSIVE", asked, told, missing=f"a run of it{f' ({skips})' if skips else ''}")

    def _failures(self, bench: BenchSummary, limit: float) -> CriterionResult:
        return replace(_failure_check(bench.counts, limit), bench=self.asked.name)

    def _device_spread(self, bench: BenchSummary, limit: float) -> CriterionResult:
        asked = f"at most {limit:.3g} between devices" if limit < 0.001 else f"at most {limit:.1%} between devices"
        spread = bench.spread_devices
        if spread is None:
            return self._check(
                "device_spread",
                "INCONCLUSIVE",
                asked,
                "not known",
                missing="a second device: this number needs several",
            )
        verdict: Verdict = "PASS" if spread <= limit else "FAIL"
        return self._trusted(
            bench, self._check("device_spread", verdict, asked, f"{spread:.2%} over {bench.instances}", value=spread)
        )

    def _bound(
        self, bench: BenchSummary, name: str, quantity: Quantity, bound: Bound, is_minimum: bool
    ) -> CriterionResult:
        of = "" if quantity in ("rate", "energy") else f" of {quantity}"
        asked = f"{'at least' if is_minimum else 'at most'} {bound}{of}"
        values = replicate_values(bench, quantity)

        def unsure(found: str, missing: str) -> CriterionResult:
            return self._check(name, "INCONCLUSIVE", asked, found, missing=missing, where=bound.where)

        if not values:
            return unsure("no number", f"a measurement of its {quantity}")
        units = units_of(bench, quantity)
        if bound.is_relative:
            if self.reference is None:
                return unsure(f"{geometric_mean(values):.6g} {units}", "this benchmark in the reference")
            if units != units_of(self.reference, quantity):
                return unsure(
                    f"in {units}", f"the same units: the reference is in {units_of(self.reference, quantity)}"
                )
            apart = differing(cases_of(self.reference.metrics), cases_of(bench.metrics))
            if apart:
                return unsure(f"{geometric_mean(values):.6g} {units}", f"the same cases as the reference: {apart}")
            base = replicate_values(self.reference, quantity)
            if not base:
                return unsure(f"{geometric_mean(values):.6g} {units}", "a number of it in the reference")
        else:
            if units != bound.units:
                return unsure(f"in {units or 'no units'}", f"the same units: {bound.units} is asked for")
            base = []
        confidence = None if quantity == "memory_peak" else self.asked.confidence
        to_fail = 1 - (1 - (confidence or 0.0)) / max(1, self.claims)
        wanted = BoundTarget(value=bound.value, is_minimum=is_minimum, confidence=confidence, to_fail=to_fail)
        decision = decide_bound(values, base, wanted)
        shown = f"{decision.value:.4g} x reference" if base else f"{decision.value:.6g} {units}"
        check = self._check(
            name,
            decision.verdict,
            asked,
            ", ".join(part for part in (shown, decision.sure) if part),
            missing=decision.missing,
            value=decision.value,
            bounds=decision.bounds,
            where=bound.where,
        )
        check = self._trusted(bench, check)
        return check if self.reference is None or not base else self._trusted(self.reference, check, "the reference's ")

    def _trusted(self, bench: BenchSummary, check: CriterionResult, whose: str = "") -> CriterionResult:
        """The check, undecided when its number is in doubt for a reason that the criteria do not allow."""
        reasons = [reason for reason in bench.reasons if reason not in self.asked.allow]
        if check.verdict == "INCONCLUSIVE" or (bench.validity != "invalid" and not reasons):
            return check
        told = ", ".join(reasons) or "no reason told"
        missing = (
            f"a number without doubt: {whose or 'its '}number is {bench.validity} ({told}); `allow` accepts reasons"
        )
        return replace(check, verdict="INCONCLUSIVE", missing=missing)


def _not_ended(whose: str) -> CriterionResult:
    return CriterionResult(
        bench="",
        criterion="ended",
        verdict="INCONCLUSIVE",
        asked=f"a {whose} that has ended",
        found="it has not",
        missing="its end: wait for it, or `milabench resume` it",
    )


def _run_failures(limit: float, run: Summary) -> CriterionResult:
    total: dict[str, int] = {}
    for bench in run.benchmarks:
        for name, count in bench.counts.items():
            total[name] = total.get(name, 0) + count
    return _failure_check(total, limit)


def _failure_check(counts: Mapping[str, int], limit: float) -> CriterionResult:
    """The share of the steps that were to run and did not pass; one that never ended did not."""
    asked = f"at most {limit:.2%} of the steps failed" if limit else "no failed step"
    wanted = counts.get("planned", 0) - counts.get("skipped", 0)
    failed = sum(counts.get(name, 0) for name in ("failed", "cancelled", "missing"))
    if not wanted:
        return CriterionResult(
            bench="", criterion="failure_rate", verdict="INCONCLUSIVE", asked=asked, found="no step", missing="steps"
        )
    share = failed / wanted
    found = f"{failed} of {wanted}"
    verdict: Verdict = "PASS" if share <= limit else "FAIL"
    return CriterionResult(bench="", criterion="failure_rate", verdict=verdict, asked=asked, found=found, value=share)


def _metric(bench: BenchSummary, step: str, name: str) -> float | None:
    values = [
        finite_number(one.get("value"))
        for one in bench.metrics
        if one.get("step") == step and one.get("metric") == name
    ]
    return max((value for value in values if value is not None), default=None)
