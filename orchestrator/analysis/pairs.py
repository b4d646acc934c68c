"""Two sides measured in turn, in one run: their ratio, pair by pair, so that what drifts meanwhile cancels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.analysis.intervals import Interval, t_quantile
from orchestrator.analysis.spread import mean, stdev

Verdict = Literal["FASTER", "SLOWER", "EQUIVALENT", "DIFFERENT-BUT-SMALL", "INCONCLUSIVE"]
MARGIN = 0.01  # differences below one per cent are never called faster or slower; docs/methodology.md, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """B over A of one benchmark: how many pairs, the geometric mean of their ratios, its 95 % interval, what that says.

    Above 1, B is better, also where less is better. `ci95` is None below three pairs.
    """

    bench: str
    pairs: int
    ratio: float
    ci95: Interval | None
    verdict: Verdict


def paired(
    bench: str, a: Mapping[int, float], b: Mapping[int, float], *, lower_is_better: bool = False
) -> Paired | None:
    """What pairs say; the values are those of a block by its number. None when no block has both."""
    blocks = sorted(a.keys() & b.keys())
    if not blocks:
        return None
    sign = -1.0 if lower_is_better else 1.0
    logs = [sign * (math.log(b[block]) - math.log(a[block])) for block in blocks]
    centre = mean(logs)
    if len(logs) < 3:
        return Paired(bench=bench, pairs=len(logs), ratio=math.exp(centre), ci95=None, verdict="INCONCLUSIVE")
    low, high = _interval(logs, 0.95)
    return Paired(
        bench=bench,
        pairs=len(logs),
        ratio=math.exp(centre),
        ci95=(math.exp(low), math.exp(high)),
        verdict=_verdict((low, high), _interval(logs, 0.90)),
    )


def _interval(logs: Sequence[float], level: float) -> Interval:
    half = t_quantile((1 + level) / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return mean(logs) - half, mean(logs) + half


def _verdict(ci95: Interval, ci90: Interval) -> Verdict:
    """Two one-sided tests for equivalence (Schuirmann 1987): the 90 % interval within the margin."""
    margin = math.log1p(MARGIN)
    if ci95[0] > margin:
        return "FASTER"
    if ci95[1] < -margin:
        return "SLOWER"
    if -margin < ci90[0] and ci90[1] < margin:
        return "EQUIVALENT" if ci95[0] <= 0 <= ci95[1] else "DIFFERENT-BUT-SMALL"
    return "INCONCLUSIVE"
