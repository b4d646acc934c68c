"""Contrasts: a system over the first, a ratio with its interval, and the verdicts on a family of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from milabench.analysis.comparison_model import ComparisonRow, Contrast, Evidence, Per, SystemResult, logs
from milabench.analysis.intervals import LEAST_LAUNCHES, Interval
from milabench.analysis.replicates import MOST_REPLICATES, processes_for
from milabench.analysis.two_samples import SIGNIFICANCE, Estimate, Judgement, difference, judge_family, welch


def contrast_of(first: SystemResult, other: SystemResult, per: Per = "system") -> Contrast | None:
    """Return the ratio of two sides with its intervals. The verdict is given when all contrasts are known."""
    if not (first.counts and other.counts) or first.units != other.units or first.direction != other.direction:
        return None
    assert first.value is not None and other.value is not None
    ratio = math.exp(*logs([other.value / first.value], first.direction))
    has_other_devices = first.devices and other.devices and first.devices != other.devices
    contrast = partial(
        Contrast,
        system=other.system,
        ratio=ratio,
        is_suspect="suspect" in (first.validity, other.validity),
        efficiency=ratio * _size(first, per) / _size(other, per) if has_other_devices else None,
    )
    fewest = min(len(first.values), len(other.values))
    if fewest < LEAST_LAUNCHES:
        note = f"{fewest} on a side, but an interval needs {LEAST_LAUNCHES} repeats on each"
        return contrast(note=note, needed=LEAST_LAUNCHES)
    # Welch, never Student: with three to five launches nobody can tell that two spreads are equal.
    estimate = estimate_of(first, other)
    evidence = Evidence(first=first, other=other, estimate=estimate)
    is_constant = all(len({*logs(side.replicates, first.direction)}) == 1 for side in (first, other))
    return contrast(
        ci95=evidence.interval(SIGNIFICANCE),
        ci95_devices=_for_other_devices(first, other, estimate.d),
        freedom=estimate.freedom,
        note="every repeat gave the same number: it has too few digits to show a spread" if is_constant else "",
        evidence=evidence,
    )


def _size(side: SystemResult, per: Per) -> float:
    """Return the devices behind the values of a side: all of them, or an instance's."""
    return side.devices if per == "system" else side.devices / max(1, side.instances)


def _for_other_devices(first: SystemResult, other: SystemResult, d: float) -> Interval | None:
    """Return the interval when the devices are a sample of their kind: as wide as Welch's on the devices' means."""
    if min(len(first.by_device), len(other.by_device)) < LEAST_LAUNCHES:
        return None
    estimate = welch(logs(first.by_device, first.direction), logs(other.by_device, first.direction))
    low, high = estimate.interval()
    return math.exp(d + low - estimate.d), math.exp(d + high - estimate.d)


def estimate_of(first: SystemResult, other: SystemResult) -> Estimate:
    """Return the logarithm of the ratio of two sides of three repeats each or more."""
    assert first.log_mean is not None and other.log_mean is not None
    estimate, step = difference(first.log_mean, other.log_mean), _rounding([*first.values, *other.values])
    # A uniform error of one step (JCGM 100, F.2.2.1) on both sides; launches that were rounded alike do not make it smaller.
    return replace(estimate, error=math.hypot(estimate.error, step / math.sqrt(6))) if step else estimate


def _rounding(values: Sequence[float]) -> float:
    """Return the last digit of numbers that were printed with two, as a share of the smallest. 0 for more digits."""
    steps = [10.0 ** (math.floor(math.log10(value)) - 1) for value in values]
    is_printed = all(math.isclose(value, step * round(value / step)) for value, step in zip(values, steps, strict=True))
    return max(step / value for value, step in zip(values, steps, strict=True)) if is_printed else 0.0


def with_verdicts(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows with verdicts, all contrasts of all systems forming a family."""
    estimates = [
        None if contrast is None or contrast.evidence is None else contrast.evidence.estimate
        for row in rows
        for contrast in row.contrasts
    ]
    judgements = iter(judge_family(estimates, [row.margin for row in rows for _ in row.contrasts]))
    return [
        replace(row, contrasts=tuple(_judged(contrast, next(judgements)) for contrast in row.contrasts)) for row in rows
    ]


def _judged(contrast: Contrast | None, judgement: Judgement | None) -> Contrast | None:
    if contrast is None or judgement is None:
        return contrast
    if judgement.verdict == "INCONCLUSIVE":
        return replace(contrast, judgement=judgement, **_what_would_decide(contrast, judgement))
    interval = contrast.ci95_devices
    if judgement.verdict in ("FASTER", "SLOWER") and interval is not None and interval[0] <= 1 <= interval[1]:
        # The devices that happened to be measured may be what makes the difference.
        bounds = f"[{interval[0]:.4f}, {interval[1]:.4f}]"
        note = f"true of these devices. For others of their kinds the 95 % interval is {bounds}"
        return replace(contrast, judgement=judgement, note=note)
    return replace(contrast, judgement=judgement)


def _what_would_decide(contrast: Contrast, judgement: Judgement) -> dict[str, Any]:
    """Return the number of repeats, or sessions, a side that would decide, if difference and spread stayed as they are.

    For the family's strictest test. Half of such repetitions would still fall short, so it is an estimate.
    """
    assert contrast.evidence is not None
    sides = contrast.evidence.first, contrast.evidence.other
    if (len(sides[0].sessions) > 1) != (len(sides[1].sessions) > 1):
        return {}  # sessions of one side, launches of the other
    levels, counts = [side.log_mean for side in sides], [len(side.replicates) for side in sides]
    spread = math.sqrt(
        sum(level.variance * n for level, n in zip(levels, counts, strict=True) if level is not None) / 2
    )
    gap = abs(math.log(contrast.ratio)) - math.log1p(judgement.margin)
    # Two-sided at 5 % for a difference; two one-sided tests at 5 % for equivalence are an interval of 90 %.
    level = 1 - (0.05 if gap > 0 else 0.10) / judgement.family
    needed = processes_for(spread, math.expm1(abs(gap)), means=2, level=level) if gap and spread else MOST_REPLICATES
    needed = max(needed, min(counts) + 1)
    unit: Literal["launches", "sessions"] = "sessions" if len(sides[0].sessions) > 1 else "launches"
    if needed >= MOST_REPLICATES:
        return {"note": "the difference is so near to the margin that more measurements would not decide"}
    return {"needed": needed, "needed_unit": unit}
