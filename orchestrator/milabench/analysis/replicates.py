"""The number of processes for a precision, and within a time. See docs/explanation/methodology.md, 1.0."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from milabench.analysis.intervals import normal_quantile, t_tail

MOST_LAUNCHES = 10
"""Of a benchmark that is measured on until it is precise, where no budget says how long to go on."""
MOST_SHORT_LAUNCHES = 30
"""The same where its repeats together take no longer than SHORT_S."""
SHORT_S = 120.0
"""Seconds of short repeats together."""
PRECISIONS: Mapping[str, float | None] = {"quick": None, "default": 0.05, "rigorous": 0.02}
"""The uncertainty that a profile asks of each number, relative. A first look asks nothing."""
MOST_REPLICATES = 10_000  # nobody runs so many; a spread that asks for more is a fault, not a spread


def processes_for(log_spread: float, precision: float, *, means: Literal[1, 2] = 1, level: float = 0.95) -> int:
    """Return the smallest n >= 2 with t_{(1+level)/2, n-1} s / sqrt n <= ln(1 + e): the mean is known to within `precision`.

    `log_spread` s is the standard deviation of the logarithms of the rates of processes, `precision` e relative, above 0. With
    two `means` it is n on each side, of a ratio of two means that both have this spread.
    """
    tail = (1 - level) / 2
    wanted = math.log1p(precision) / log_spread if log_spread else math.inf
    if wanted <= 0:
        return MOST_REPLICATES

    def is_enough(n: int) -> bool:
        # Where the tail at the wanted width is no more than that of the level, t at the level is no wider.
        return t_tail(wanted * math.sqrt(n / means), means * (n - 1)) <= tail

    # By the normal distribution, which is narrower than t, fewer would do: by about (z^2 + 1) / (2 means).
    z = normal_quantile(1 - tail)
    fewest = means * min(z / wanted, math.sqrt(MOST_REPLICATES)) ** 2
    candidates = range(max(2, min(MOST_REPLICATES, math.ceil(fewest))), MOST_REPLICATES + 1)
    near = min(math.ceil((z * z + 1) / (2 * means)) + 2, len(candidates) - 1)
    place = bisect_left(candidates, True, hi=near, key=is_enough)
    if place == near:
        place = bisect_left(candidates, True, lo=near, hi=len(candidates) - 1, key=is_enough)
    return candidates[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionTarget:
    """The uncertainty that each number should have, relative, and the seconds for all repeats.

    Benchmarks are measured on until they are precise: up to `budget_s`, else up to ten repeats, thirty of short ones, and
    `most_s`, the time that the estimate gave beforehand. Without a precision the budget only trims the planned replicates.
    """

    precision: float | None = None
    budget_s: float | None = None
    most_s: float | None = None

    def most_launches(self, seconds: float) -> int:
        """Return how often a benchmark is launched at most whose repeats take so many seconds each."""
        if self.budget_s is not None:
            return MOST_REPLICATES
        short = math.floor(min(MOST_SHORT_LAUNCHES, SHORT_S / seconds)) if seconds else MOST_SHORT_LAUNCHES
        return max(MOST_LAUNCHES, short)

    @property
    def limit_s(self) -> float | None:
        """The seconds that all repeats may take together. None without a limit."""
        return self.most_s if self.budget_s is None else self.budget_s

    def to_json(self) -> dict[str, float | None]:
        """Return its fields, as manifest and summary have them."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicates:
    """How often a benchmark is run: `wanted` by the profile or the user, None while it is measured on, and `planned`."""

    planned: int
    wanted: int | None = None

    @property
    def is_capped(self) -> bool:
        """Whether the budget is too small for the wanted replicates."""
        return self.wanted is not None and self.planned < self.wanted

    def to_json(self) -> dict[str, int | None]:
        """Return `{"planned", "wanted"}`, as manifest and summary have it."""
        return asdict(self)


def next_block(
    launches: Mapping[str, int],
    imprecise: Mapping[str, float],
    seconds: Mapping[str, float],
    spent_s: float,
    target: PrecisionTarget,
) -> dict[str, int]:
    """Return the repeats of each benchmark after another block, unchanged where nothing more is to be measured.

    `imprecise` has the uncertainty of each benchmark that is not as precise as asked, infinite where it is not known. `seconds`
    the seconds of a repeat, `spent_s` of all so far. Where not all fit into the time, the most imprecise come first.
    """
    left = math.inf if target.limit_s is None else target.limit_s - spent_s
    planned = dict(launches)
    for name in sorted(imprecise, key=lambda name: (-imprecise[name], name)):
        more = max(1, launches[name] // MOST_LAUNCHES)  # decisions read all records: of many launches not after each
        each = seconds.get(name, 0.0)
        more = min(more, target.most_launches(each) - launches[name])
        cost = more * each
        if more > 0 and cost <= left:
            planned[name] += more
            left -= cost
    return planned


def within(wanted: Mapping[str, int], seconds: Mapping[str, float], budget_s: float) -> dict[str, int]:
    """Return the wanted replicates that fit a budget. `seconds` is the time of a replicate.

    It is spent block by block, as the run will: a block in which every benchmark that still needs a replicate has it is
    either paid for as a whole, or is the first that is not run.
    """
    blocks, left = 0, budget_s
    while blocks < max(wanted.values(), default=0):
        left -= math.fsum(seconds[name] for name, n in wanted.items() if n > blocks)
        if left < 0:
            break
        blocks += 1
    return {name: min(n, blocks) for name, n in wanted.items()}
