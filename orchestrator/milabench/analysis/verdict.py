"""What an interval of a ratio means: the five verdicts of a comparison, and how many claims at once are allowed for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from milabench.analysis.intervals import t_tail
from milabench.analysis.two_samples import Estimate

Verdict = Literal["FASTER", "SLOWER", "EQUIVALENT", "DIFFERENT-BUT-SMALL", "INCONCLUSIVE"]
MARGIN = 0.01  # differences below one per cent are never called faster or slower; docs/explanation/methodology.md, 1.0
LEVEL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one of a family of claims comes to.

    `p` is that of the difference being within the margin, `p_holm` corrected for the family, `p_bh` for screening;
    `p_equal_holm`, corrected too, is that of its being beyond the margin.
    """

    verdict: Verdict
    p: float
    p_holm: float
    p_bh: float
    p_equal_holm: float


def judge_family(estimates: Sequence[Estimate | None], margins: Sequence[float]) -> list[Judgement | None]:
    """Return the verdict on each logarithm of a ratio, all of them being one family of claims (Holm's correction).

    Where there is no estimate there is no claim: it has no verdict, and makes the others' no stricter.
    """
    claims = [(e, margin) for e, margin in zip(estimates, margins, strict=True) if e is not None]
    p_difference = [difference_p(e.d, e.error, e.freedom, margin) for e, margin in claims]
    p_equal = holm([equivalence_p(e.d, e.error, e.freedom, margin) for e, margin in claims])
    corrected = zip(p_difference, holm(p_difference), benjamini_hochberg(p_difference), p_equal, strict=True)
    judged: list[Judgement | None] = []
    for e in estimates:
        if e is None:
            judged.append(None)
            continue
        p, p_holm, p_bh, p_equal_holm = next(corrected)
        verdict = verdict_of(e.d, e.error, e.freedom, p_difference=p_holm, p_equivalence=p_equal_holm)
        judged.append(Judgement(verdict=verdict, p=p, p_holm=p_holm, p_bh=p_bh, p_equal_holm=p_equal_holm))
    return judged


def verdict_of(d: float, error: float, freedom: float, *, p_difference: float, p_equivalence: float) -> Verdict:
    """Return the verdict on a log ratio `d` with its standard error; the p-values are already corrected for their family.

    FASTER and SLOWER: beyond the margin. EQUIVALENT: within it by two one-sided tests (Schuirmann 1987), and
    DIFFERENT-BUT-SMALL when the ordinary 95 % interval leaves out 0 as well.
    """
    if p_difference <= LEVEL:
        return "FASTER" if d > 0 else "SLOWER"
    if p_equivalence <= LEVEL:
        is_zero_possible = 2 * tail(abs(d), error, freedom) > LEVEL
        return "EQUIVALENT" if is_zero_possible else "DIFFERENT-BUT-SMALL"
    return "INCONCLUSIVE"


def difference_p(d: float, error: float, freedom: float, margin: float) -> float:
    """Two-sided p-value of |d| <= ln(1 + margin): at most 0.05 just when the 95 % interval lies wholly beyond the margin."""
    return min(1.0, 2 * tail(abs(d) - math.log1p(margin), error, freedom))


def equivalence_p(d: float, error: float, freedom: float, margin: float) -> float:
    """p-value of |d| >= ln(1 + margin): at most 0.05 just when the 90 % interval lies wholly within the margin."""
    return tail(math.log1p(margin) - abs(d), error, freedom)


def tail(distance: float, error: float, freedom: float) -> float:
    """P(T > distance / error); without any spread it is certain on which side a value lies."""
    if error == 0:
        return 0.0 if distance > 0 else 0.5 if distance == 0 else 1.0
    z = distance / error
    return t_tail(z, freedom) if z >= 0 else 1 - t_tail(-z, freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values such that claiming all those at or below 5 % makes one false claim or more in at most 5 % (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """p-values for screening: of what is at or below 5 %, one in twenty is expected to be false (Benjamini, Hochberg 1995)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__, reverse=True)
    corrected, lowest = [0.0] * len(p_values), 1.0
    for rank, index in enumerate(order):
        lowest = min(lowest, p_values[index] * len(p_values) / (len(p_values) - rank))
        corrected[index] = lowest
    return corrected
