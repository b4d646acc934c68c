"""Contrasts: one system over the first one, a ratio with its interval, and the verdicts on a family of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Literal

from milabench.analysis.comparison_model import ComparisonRow, Contrast, SystemResult, logs
from milabench.analysis.intervals import Interval
from milabench.analysis.replicates import LEAST, MOST, processes_for_ratio
from milabench.analysis.two_samples import (
    Estimate,
    Judgement,
    difference,
    fieller,
    hodges_lehmann,
    judge_family,
    least_p,
    mann_whitney_p,
    welch,
)


def contrast_of(first: SystemResult, other: SystemResult) -> Contrast | None:
    """Return the ratio of two sides with its intervals; the verdict is given when all contrasts are known."""
    if not (first.counts and other.counts) or first.units != other.units or first.direction != other.direction:
        return None
    assert first.value is not None and other.value is not None
    ratio = math.exp(*logs([other.value / first.value], first.direction))
    has_other_devices = first.devices and other.devices and first.devices != other.devices
    contrast = Contrast(
        system=other.system,
        ratio=ratio,
        is_suspect="suspect" in (first.validity, other.validity),
        efficiency=ratio * first.devices / other.devices if has_other_devices else None,
    )
    fewest = min(len(first.values), len(other.values))
    if fewest < LEAST:
        note = f"{fewest} on a side; there is no interval below {LEAST} launches on each"
        return replace(contrast, note=note, needed=LEAST)
    a, b = (logs(side.replicates, first.direction) for side in (first, other))
    # Welch, never Student: with three to five launches nobody can tell that two spreads are equal.
    estimate, is_constant = estimate_of(first, other), len({*a}) == len({*b}) == 1
    return replace(
        contrast,
        ci95=estimate.ratio_interval(0.95),
        ci90=estimate.ratio_interval(0.90),
        ci95_devices=_for_other_devices(first, other, estimate.d),
        freedom=estimate.freedom,
        # On the numbers themselves: a method that shares no assumption with the logarithms and should agree.
        cross_check=fieller([math.exp(value) for value in a], [math.exp(value) for value in b]),
        shift=math.exp(hodges_lehmann(a, b)),
        rank_p=mann_whitney_p(a, b),
        least_rank_p=least_p(len(a), len(b)),
        note="every launch gave the same number: its digits are too few to see a spread" if is_constant else "",
    )


def _for_other_devices(first: SystemResult, other: SystemResult, d: float) -> Interval | None:
    """Return the interval when the devices are a sample of their kind: as wide as Welch's on the devices' means."""
    if min(len(first.by_device), len(other.by_device)) < LEAST:
        return None
    estimate = welch(logs(first.by_device, first.direction), logs(other.by_device, first.direction))
    low, high = estimate.interval()
    return math.exp(d + low - estimate.d), math.exp(d + high - estimate.d)


def estimate_of(first: SystemResult, other: SystemResult) -> Estimate:
    """Return the logarithm of the ratio of two sides of three launches each or more."""
    assert first.log_mean is not None and other.log_mean is not None
    return difference(first.log_mean, other.log_mean)


def with_verdicts(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows with verdicts, all contrasts of all systems being one family."""
    estimates = [
        None if contrast is None or contrast.ci95 is None else estimate_of(row.sides[0], side)
        for row in rows
        for contrast, side in zip(row.contrasts, row.sides[1:], strict=True)
    ]
    family = sum(estimate is not None for estimate in estimates)
    judgements = iter(judge_family(estimates, [row.margin for row in rows for _ in row.contrasts]))
    return [
        replace(
            row,
            contrasts=tuple(
                _judged(contrast, next(judgements), row, column, family)
                for column, contrast in enumerate(row.contrasts)
            ),
        )
        for row in rows
    ]


def _judged(
    contrast: Contrast | None, judgement: Judgement | None, row: ComparisonRow, column: int, family: int
) -> Contrast | None:
    if contrast is None or judgement is None:
        return contrast
    contrast = replace(contrast, **asdict(judgement))
    if judgement.verdict == "INCONCLUSIVE":
        return _undecided(contrast, row, column, family)
    interval = contrast.ci95_devices
    if judgement.verdict in ("FASTER", "SLOWER") and interval is not None and interval[0] <= 1 <= interval[1]:
        # The devices that happened to be measured may be what makes the difference.
        bounds = f"[{interval[0]:.4f}, {interval[1]:.4f}]"
        note = f"true of these devices; for others of their kinds the 95 % interval is {bounds}"
        return replace(contrast, note=note)
    return contrast


def _undecided(contrast: Contrast, row: ComparisonRow, column: int, family: int) -> Contrast:
    """Add the number of launches, or sessions, a side that would decide, if difference and spread stayed as they are.

    For the family's strictest test; half of such repetitions would still fall short, so it is an estimate.
    """
    sides = row.sides[0], row.sides[column + 1]
    if (len(sides[0].sessions) > 1) != (len(sides[1].sessions) > 1):
        return contrast  # sessions of one side, launches of the other
    levels, counts = [side.log_mean for side in sides], [len(side.replicates) for side in sides]
    spread = math.sqrt(
        sum(level.variance * n for level, n in zip(levels, counts, strict=True) if level is not None) / 2
    )
    gap = abs(math.log(contrast.ratio)) - math.log1p(row.margin)
    # Two-sided at 5 % for a difference; two one-sided tests at 5 % for equivalence are an interval of 90 %.
    level = 1 - (0.05 if gap > 0 else 0.10) / family
    needed = processes_for_ratio(spread, math.expm1(abs(gap)), level=level) if gap and spread else MOST
    needed = max(needed, min(counts) + 1)
    unit: Literal["launches", "sessions"] = "sessions" if len(sides[0].sessions) > 1 else "launches"
    if needed >= MOST:
        return replace(contrast, note=f"the difference is so near to the margin that no number of {unit} would decide")
    return replace(contrast, needed=needed, needed_unit=unit)
