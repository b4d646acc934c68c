"""Two sides measured in turn, in the same run: their ratio, pair by pair, so that drift cancels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from milabench.analysis.intervals import LEAST_LAUNCHES, Interval
from milabench.analysis.json_codec import NOT_WRITTEN, JsonKey, to_json_value
from milabench.analysis.sample_statistics import mean
from milabench.analysis.two_samples import DEFAULT_MARGIN, ROUNDING, Estimate, Verdict, judge_family, paired_difference
from milabench.shown import some_of

_WORST_FIRST: tuple[Verdict, ...] = ("SLOWER", "FASTER", "DIFFERENT-BUT-SMALL", "INCONCLUSIVE", "EQUIVALENT")
_MOST_NAMED = 3  # pairs of a verdict that the sentence names


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A benchmark on both sides, B over A: the geometric mean of the ratios of `pairs`, its 95 % interval, its verdict.

    `a` and `b` are the benchmark's names on the two sides. A ratio above 1 means that B is better. For lower-is-better metrics it
    is inverted. It is None, and `why` says why, when no pair has a number on both sides. `ci95` and `estimate`, its basis, are
    None below three pairs. `is_same`: both sides plan the same steps, so that differences are noise. `p_holm` is for a
    difference within the margin, corrected for all benchmarks of the family. `doubts` are why a side is suspect.
    """

    bench: str
    a: Annotated[str, NOT_WRITTEN]
    b: Annotated[str, NOT_WRITTEN]
    pairs: int = 0
    ratio: float | None = None
    ci95: Interval | None = None
    verdict: Verdict = "INCONCLUSIVE"
    units: str = ""
    why: str = ""
    is_same: Annotated[bool, JsonKey("same_steps", followed_by=("noise",))] = False
    p_holm: float | None = None
    doubts: Annotated[tuple[str, ...], JsonKey("reasons")] = ()
    estimate: Annotated[Estimate | None, NOT_WRITTEN] = None

    @property
    def note(self) -> str:
        """Why the interval has no width. Empty where it has a width."""
        has_spread = self.estimate is None or self.estimate.error > ROUNDING
        return "" if has_spread else "every pair gave the same ratio: its numbers have too few digits to see a spread"

    @property
    def text(self) -> str:
        """The ratio in words: `digits: B is 0.2494 x A`, and of two commands `sleep 0.2 is 0.2494 x sleep 0.05`."""
        is_of_suites = self.a == f"{self.bench}@A"
        a, b = ("A", f"{self.bench}: B") if is_of_suites else (self.a, self.b)
        if self.ratio is None:
            return f"{b} and {a}: {self.why}"
        interval = "" if self.ci95 is None else " [{:.4f}, {:.4f}]".format(*self.ci95)
        return f"{b} is {self.ratio:.4f} x {a}{interval}"

    @property
    def noise(self) -> float | None:
        """Of an A/A pair: the smallest relative difference that counts; methodology.md, 1.0."""
        if not self.is_same or self.ci95 is None:
            return None
        return max(DEFAULT_MARGIN, *(math.exp(abs(math.log(bound))) - 1 for bound in self.ci95))


@dataclass(frozen=True, slots=True, kw_only=True)
class AB:
    """The result of an A/B run: the suite of each side, every benchmark that both have, and the differences (`differs`)."""

    suites: tuple[str, ...]
    differs: str = ""
    pairs: tuple[Pair, ...]

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
        clauses = [f"{verdict}: {some_of(texts, _MOST_NAMED)}" for verdict, texts in named.items() if texts]
        return "; ".join(clauses) or "INCONCLUSIVE: no benchmark is on both sides"

    def to_json(self) -> dict[str, Any]:
        """Return `ab` of a summary. See docs/reference/protocol.md, section 6."""
        return {"verdict": self.verdict, **to_json_value(self)}


def with_ratio(pair: Pair, a: Mapping[int, float], b: Mapping[int, float], *, lower_is_better: bool = False) -> Pair:
    """Return the pair with the ratio of its sides, each its values by block number. Without one when no block has both."""
    blocks = sorted(a.keys() & b.keys())
    if not blocks:
        return replace(pair, why="no pair has a number on both sides")
    sign = -1.0 if lower_is_better else 1.0
    before, after = ([sign * math.log(side[block]) for block in blocks] for side in (a, b))
    if len(blocks) < LEAST_LAUNCHES:
        return replace(pair, pairs=len(blocks), ratio=math.exp(mean(after) - mean(before)))
    estimate = paired_difference(before, after)
    ratio, interval = math.exp(estimate.d), estimate.ratio_interval()
    return replace(pair, pairs=len(blocks), ratio=ratio, ci95=interval, estimate=estimate)


def paired_verdicts(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return the pairs with the verdicts that all of them together allow. Those with a remark instead have none."""
    estimates = [None if pair.why else pair.estimate for pair in pairs]
    judgements = judge_family(estimates, [DEFAULT_MARGIN] * len(pairs))
    return tuple(
        pair if judgement is None else replace(pair, verdict=judgement.verdict, p_holm=judgement.p_holm)
        for pair, judgement in zip(pairs, judgements, strict=True)
    )
