"""Two sides measured in turn, in the same run: their ratio, pair by pair, so that drift cancels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from milabench.analysis.intervals import LEAST_LAUNCHES, Interval
from milabench.analysis.sample_statistics import mean
from milabench.analysis.two_samples import DEFAULT_MARGIN, ROUNDING, Estimate, Verdict, judge_family, paired_difference

_WORST_FIRST: tuple[Verdict, ...] = ("SLOWER", "FASTER", "DIFFERENT-BUT-SMALL", "INCONCLUSIVE", "EQUIVALENT")
_MOST_NAMED = 3  # pairs of a verdict that the sentence names


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """B over A of a benchmark: the number of pairs, the geometric mean of their ratios, its 95 % interval, its verdict.

    > 1 means that B is better. For lower-is-better metrics the ratio is inverted. `ci95` and `estimate`, its basis,
    are None below three pairs.
    `p_holm` and `p_equal_holm` are for a difference within the margin, and beyond it, corrected for all
    benchmarks of the family.
    """

    bench: str
    pairs: int
    ratio: float
    ci95: Interval | None
    verdict: Verdict
    estimate: Estimate | None = None
    p_holm: float | None = None
    p_equal_holm: float | None = None

    @property
    def note(self) -> str:
        """Why the interval has no width. Empty where it has a width."""
        has_spread = self.estimate is None or self.estimate.error > ROUNDING
        return "" if has_spread else "every pair gave the same ratio: its numbers have too few digits to see a spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A benchmark on both sides.

    `a` and `b` are the benchmark's names on the two sides. `result` is None, and `why` says why, when no pair has a number
    on both sides. `is_same`: both sides plan the same steps, so that differences are noise. `reasons` are why a side is suspect.
    """

    bench: str
    a: str
    b: str
    result: Paired | None
    why: str = ""
    units: str = ""
    is_same: bool = False
    doubts: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Whether B is faster or slower. INCONCLUSIVE without a number."""
        return self.result.verdict if self.result else "INCONCLUSIVE"

    @property
    def text(self) -> str:
        """The ratio in words: `digits: B is 0.2494 x A`, and of two commands `sleep 0.2 is 0.2494 x sleep 0.05`."""
        is_of_suites = self.a == f"{self.bench}@A"
        a, b = ("A", f"{self.bench}: B") if is_of_suites else (self.a, self.b)
        if self.result is None:
            return f"{b} and {a}: {self.why}"
        interval = "" if self.result.ci95 is None else " [{:.4f}, {:.4f}]".format(*self.result.ci95)
        return f"{b} is {self.result.ratio:.4f} x {a}{interval}"

    @property
    def noise(self) -> float | None:
        """Of an A/A pair: the smallest relative difference that counts; methodology.md, 1.0."""
        if not self.is_same or self.result is None or self.result.ci95 is None:
            return None
        return max(DEFAULT_MARGIN, *(math.exp(abs(math.log(bound))) - 1 for bound in self.result.ci95))

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `ab.pairs`. See docs/reference/protocol.md, section 6."""
        result = self.result
        return {
            "bench": self.bench,
            "pairs": result.pairs if result else 0,
            "ratio": result.ratio if result else None,
            "ci95": list(result.ci95) if result and result.ci95 else None,
            "verdict": self.verdict,
            "units": self.units,
            "why": self.why,
            "same_steps": self.is_same,
            "noise": self.noise,
            "p_holm": result.p_holm if result else None,
            "reasons": list(self.doubts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AB:
    """The result of an A/B run: the suite of each side, every benchmark that both have, and the differences (`differs`)."""

    suites: tuple[str, ...]
    pairs: tuple[Pair, ...]
    differs: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the run: SLOWER where any pair is, and INCONCLUSIVE without pairs."""
        verdicts = {pair.verdict for pair in self.pairs}
        return next((verdict for verdict in _WORST_FIRST if verdict in verdicts), "INCONCLUSIVE")

    @property
    def sentence(self) -> str:
        """The verdicts, the worst first, each with its pairs: `SLOWER: B 0.2494 x A (digits)`."""
        named: dict[str, list[str]] = {verdict: [] for verdict in _WORST_FIRST}
        for pair in self.pairs:
            named[pair.verdict].append(pair.text)
        clauses = [
            f"{verdict}: {', '.join(texts[:_MOST_NAMED])}"
            + (f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else "")
            for verdict, texts in named.items()
            if texts
        ]
        return "; ".join(clauses) or "INCONCLUSIVE: no benchmark is on both sides"

    def to_json(self) -> dict[str, Any]:
        """Return `ab` of a summary. See docs/reference/protocol.md, section 6."""
        return {
            "verdict": self.verdict,
            "suites": list(self.suites),
            "differs": self.differs,
            "pairs": [pair.to_json() for pair in self.pairs],
        }


def paired_ratio(
    bench: str, a: Mapping[int, float], b: Mapping[int, float], *, lower_is_better: bool = False
) -> Paired | None:
    """Return the paired ratio of two sides, each its values by block number. None when no block has both."""
    blocks = sorted(a.keys() & b.keys())
    if not blocks:
        return None
    sign = -1.0 if lower_is_better else 1.0
    before, after = ([sign * math.log(side[block]) for block in blocks] for side in (a, b))
    if len(blocks) < LEAST_LAUNCHES:
        ratio = math.exp(mean(after) - mean(before))
        return Paired(bench=bench, pairs=len(blocks), ratio=ratio, ci95=None, verdict="INCONCLUSIVE")
    estimate = paired_difference(before, after)
    alone = Paired(
        bench=bench,
        pairs=len(blocks),
        ratio=math.exp(estimate.d),
        ci95=estimate.ratio_interval(),
        verdict="INCONCLUSIVE",
        estimate=estimate,
    )
    return paired_verdicts([alone])[0]


def paired_verdicts(family: Sequence[Paired]) -> list[Paired]:
    """Return pairs with verdicts, all benchmarks of a run forming a family."""
    judgements = judge_family([paired.estimate for paired in family], [DEFAULT_MARGIN] * len(family))
    return [
        paired if by is None else replace(paired, verdict=by.verdict, p_holm=by.p_holm, p_equal_holm=by.p_equal_holm)
        for paired, by in zip(family, judgements, strict=True)
    ]
