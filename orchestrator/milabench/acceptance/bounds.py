"""Whether replicates show that a number keeps a bound: at a confidence, one-sided, on logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from milabench.analysis.acceptance_model import Verdict
from milabench.analysis.intervals import LEAST_LAUNCHES, t_quantile
from milabench.analysis.replicates import MOST_REPLICATES, processes_for
from milabench.analysis.sample_statistics import geometric_mean, log_stdev, mean, stdev
from milabench.analysis.serving_model import PointValue
from milabench.analysis.two_samples import ROUNDING, Estimate, welch
from milabench.analysis.uncertainty import CONFIDENCE, NO_ALLOWANCE, Allowance, launches_for, widening

_ALIKE = ", all repeats equal: too few digits to show a spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveNumber:
    """A number of a curve in `units`, with its repeats' `values`, or why it is `missing`, with the `measured` result as text.

    `quantile` is the number with its bounds, where it is a quantile of requests.
    """

    value: float = 0.0
    values: tuple[float, ...] = ()
    units: str = ""
    measured: str = ""
    missing: str = ""
    quantile: PointValue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTarget:
    """A number to reach (`is_minimum`) or to stay below.

    `confidence` is the confidence that a PASS needs, None when the measured value decides. `to_fail` is the confidence for a
    FAIL. `allowance` is the uncertainty in addition to the scatter of repeats. `of_launches` is the confidence of Student's t
    over the repeats.
    """

    value: float
    is_minimum: bool
    confidence: float | None
    to_fail: float
    allowance: Allowance = NO_ALLOWANCE
    of_launches: float = CONFIDENCE

    def is_kept_by(self, value: float) -> bool:
        """Return whether a single number keeps the bound. Rounding of logarithms is ignored."""
        if math.isclose(value, self.value, rel_tol=1e-12):
            return True
        return (value > self.value) == self.is_minimum


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundDecision:
    """`value` is the measurement, or its ratio to the reference. `sure` is the basis of the verdict in words, `bound` its bound.

    `bounds` are the one-sided bounds that a PASS and a FAIL stand on. `missing` is the evidence that an undecided one lacks.
    """

    verdict: Verdict
    value: float
    sure: str = ""
    bound: str = ""
    bounds: tuple[float, float] | None = None
    missing: str = ""


_NAMES = {"at least": "lower bound", "at most": "upper bound"}


def decide_bound(values: Sequence[float], base: Sequence[float], wanted: BoundTarget) -> BoundDecision:
    """Check replicates' numbers, or their ratio to a reference's numbers (`base`, else empty), against a bound.

    All numbers are above zero, and there is at least one.
    """
    centre = geometric_mean(values) / (geometric_mean(base) if base else 1.0)
    if wanted.confidence is None:
        return BoundDecision(verdict="PASS" if wanted.is_kept_by(centre) else "FAIL", value=centre)
    fewest = min(len(values), len(base) or len(values))
    if fewest < LEAST_LAUNCHES:
        missing = f"repeats: {fewest} of at least {LEAST_LAUNCHES}. Measure with --repeat {LEAST_LAUNCHES}"
        return BoundDecision(verdict="INCONCLUSIVE", value=centre, missing=missing)
    estimate = _estimate(values, base)
    estimate = replace(estimate, error=estimate.error * widening(wanted.of_launches, fewest))
    towards = -1 if wanted.is_minimum else 1
    below, above = wanted.allowance
    to_keep, to_miss = (below, above) if wanted.is_minimum else (above, below)
    kept = math.exp(estimate.d + towards * (_reach(estimate, wanted.confidence) + to_keep))
    missed = math.exp(estimate.d - towards * (_reach(estimate, wanted.to_fail) + to_miss))
    by = f"n={len(values)}{_ALIKE if estimate.error <= ROUNDING else ''}"
    decision = _decision(centre, kept, missed, wanted, by)
    if decision.verdict != "INCONCLUSIVE":
        return decision
    return replace(decision, missing=_more(values, base, estimate.d - math.log(wanted.value), wanted))


def decide_quantile(number: PointValue, base: PointValue | None, wanted: BoundTarget) -> BoundDecision:
    """Check a quantile of requests, or its ratio to a reference's, against a bound, by its one-sided bounds.

    The bounds of a ratio are after Zou and Donner (2008), on logarithms.
    """
    centre = number.value / (base.value if base is not None else 1.0)
    if wanted.confidence is None:
        return BoundDecision(verdict="PASS" if wanted.is_kept_by(centre) else "FAIL", value=centre)
    kept = _ratio_bound(number, base, wanted.confidence, is_upper=not wanted.is_minimum)
    missed = _ratio_bound(number, base, wanted.to_fail, is_upper=wanted.is_minimum)
    decision = _decision(centre, kept, missed, wanted, "by order statistics")
    few = "few-requests: more requests at this point, or repeats"
    return replace(decision, missing=few) if decision.verdict == "INCONCLUSIVE" else decision


def _decision(value: float, kept: float | None, missed: float | None, wanted: BoundTarget, by: str) -> BoundDecision:
    """Return the decision by the one-sided bounds that a PASS and a FAIL stand on, as far as known. `by` is their basis."""
    is_kept = kept is not None and wanted.is_kept_by(kept)
    is_missed = not is_kept and missed is not None and not wanted.is_kept_by(missed)
    bound, confidence = (missed, wanted.to_fail) if is_missed else (kept, wanted.confidence)
    word = "at most" if wanted.is_minimum == is_missed else "at least"
    return BoundDecision(
        verdict="PASS" if is_kept else "FAIL" if is_missed else "INCONCLUSIVE",
        value=value,
        sure="" if bound is None else f"{word} {bound:.4g} at {confidence:.3g} confidence, {by}",
        bound="" if bound is None else f"{_NAMES[word]} {bound:.4g}",
        bounds=None if kept is None or missed is None else (kept, missed),
    )


def _ratio_bound(number: PointValue, base: PointValue | None, confidence: float, *, is_upper: bool) -> float | None:
    own = number.bound(confidence, is_upper=is_upper)
    if own is None or base is None:
        return own
    other = base.bound(confidence, is_upper=not is_upper)
    if other is None or min(own, other) <= 0:
        return None
    reach = math.hypot(math.log(own / number.value), math.log(other / base.value))
    return number.value / base.value * math.exp(reach if is_upper else -reach)


def _more(values: Sequence[float], base: Sequence[float], away: float, wanted: BoundTarget) -> str:
    """Return how many replicates would decide, if they went on as these did."""
    # A one-sided bound at confidence c is an end of the two-sided interval at 2 c - 1.
    shifted = wanted.allowance.one_sided
    allowed = shifted.below if away > 0 else shifted.above
    precision, level = math.expm1(abs(away) - allowed), 2 * (wanted.confidence or 0.0) - 1
    if precision <= 0 < allowed:
        return "a calmer run: the possible cost of disturbances exceeds the bound"
    if precision <= 0:
        return "nothing that repeats could give: it is exactly the bound"
    spread = max(log_stdev(values) or 0.0, log_stdev(base) or 0.0)
    fewest = processes_for(spread, precision, means=2 if base else 1, level=level)
    sides = " on both sides" if base else ""
    needed = min(MOST_REPLICATES, max(fewest, LEAST_LAUNCHES, launches_for(abs(away) - allowed)))
    most = "more than" if needed >= MOST_REPLICATES else "about"
    return f"repeats: {most} {needed}{sides} would decide if they are like these"


def _estimate(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Return the mean logarithm, or its difference to the reference's, with its standard error."""
    logs = [math.log(value) for value in values]
    if base:
        return welch([math.log(value) for value in base], logs)
    return Estimate(d=mean(logs), error=stdev(logs) / math.sqrt(len(logs)), freedom=len(logs) - 1)


def _reach(estimate: Estimate, confidence: float) -> float:
    """Return the distance of a one-sided bound from the estimate."""
    return t_quantile(confidence, estimate.freedom) * estimate.error if estimate.error else 0.0
