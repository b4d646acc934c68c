"""Two sides measured in turn, in one run: their ratio, pair by pair, so that what drifts meanwhile cancels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.analysis import two_samples
from orchestrator.analysis.intervals import Interval
from orchestrator.analysis.spread import mean
from orchestrator.analysis.verdict import MARGIN, Verdict, difference_p, equivalence_p, verdict_of


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
    before, after = ([sign * math.log(side[block]) for block in blocks] for side in (a, b))
    if len(blocks) < 3:
        ratio = math.exp(mean(after) - mean(before))
        return Paired(bench=bench, pairs=len(blocks), ratio=ratio, ci95=None, verdict="INCONCLUSIVE")
    told = two_samples.paired(before, after)
    low, high = told.interval()
    one = (told.d, told.error, told.freedom)
    return Paired(
        bench=bench,
        pairs=len(blocks),
        ratio=math.exp(told.d),
        ci95=(math.exp(low), math.exp(high)),
        verdict=verdict_of(*one, p_difference=difference_p(*one, MARGIN), p_equivalence=equivalence_p(*one, MARGIN)),
    )
