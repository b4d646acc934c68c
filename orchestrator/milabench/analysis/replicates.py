"""How many processes a precision takes, computed once from a pilot (Stein's two stages); docs/explanation/methodology.md, 1.0."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from milabench.analysis.intervals import LEAST_LAUNCHES, normal_quantile, t_tail
from milabench.analysis.sample_statistics import log_stdev

PILOT_LAUNCHES = 5
PRECISIONS: Mapping[str, float | None] = {"quick": None, "default": 0.05, "rigorous": 0.02}
"""The uncertainty that a profile asks of each number, relative; a first look asks nothing."""
MOST_REPLICATES = 10_000  # nobody runs so many; a spread that asks for more is a fault, not a spread


def processes_for(log_spread: float, precision: float, *, level: float = 0.95) -> int:
    """Return the least n >= 2 with t_{(1+level)/2, n-1} s / sqrt n <= ln(1 + e): the mean is known to within `precision`.

    `log_spread` s is the standard deviation of the logarithms of the rates of processes, `precision` e relative, above 0.
    """
    return _least(log_spread, precision, level, means=1)


def processes_for_ratio(log_spread: float, precision: float, *, level: float = 0.95) -> int:
    """Return the least n on each side for a ratio of two means that is known to within `precision`, both with this spread."""
    return _least(log_spread, precision, level, means=2)


def _least(log_spread: float, precision: float, level: float, means: Literal[1, 2]) -> int:
    """Return the least n >= 2 with which so many means of n values are known to within `precision` together."""
    tail = (1 - level) / 2
    wanted = math.log1p(precision) / log_spread if log_spread else math.inf
    if wanted <= 0:
        return MOST_REPLICATES

    def is_enough(n: int) -> bool:
        # Where the tail at the wanted width is no more than that of the level, t at the level is no wider.
        return t_tail(wanted * math.sqrt(n / means), means * (n - 1)) <= tail

    # The normal distribution alone would have fewer do: t is wider, by about (z^2 + 1) / (4 freedom) of z.
    z = normal_quantile(1 - tail)
    if z / wanted >= math.sqrt(MOST_REPLICATES / means):
        return MOST_REPLICATES
    low, high, step = 1, MOST_REPLICATES, 1
    n = max(2, min(MOST_REPLICATES - 1, math.ceil(means * (z / wanted) ** 2 + (z * z + 1) / (2 * means))))
    while high - low > 1:  # in steps that double, never beyond the middle: the first n is nearly right
        if is_enough(n):
            high, n = n, max(n - step, (low + n) // 2)
        else:
            low, n = n, min(n + step, (n + high) // 2)
        step *= 2
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionTarget:
    """How well each mean should be known, as the relative half-width of its 95 % interval, and the seconds for all of it.

    Without a precision the budget only trims what would be run anyway.
    """

    precision: float | None = None
    budget_s: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """Return `{"precision", "budget_s"}`, as manifest and summary have it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """What the pilot of a benchmark showed: a rate (of a pair: a ratio) for each launch, and the seconds of one replicate.

    Concurrent instances are one launch: they share whatever that launch had.
    """

    rates: Sequence[float]
    replicate_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicates:
    """How often a benchmark is run: `wanted` for the aim, `planned` within the budget; None where no pilot says."""

    wanted: int | None
    planned: int
    log_spread: float | None = None

    @property
    def is_capped(self) -> bool:
        """Whether the budget does not reach for what is wanted."""
        return self.wanted is not None and self.planned < self.wanted

    def to_json(self) -> dict[str, float | None]:
        """Return `{"wanted", "planned", "log_spread"}`, as manifest and summary have it."""
        return asdict(self)


def replicates(
    pilots: Mapping[str, Pilot], *, precision: float, budget_s: float | None = None, pilot: int = PILOT_LAUNCHES
) -> dict[str, Replicates]:
    """Return the number of replicates of each benchmark, the pilot's among them, which stays fixed from here on.

    `budget_s` is what is left after the pilot. A benchmark of which fewer than three launches have a rate stays at its
    pilot.
    """
    spreads = {
        name: log_stdev(seen.rates) if len(seen.rates) >= LEAST_LAUNCHES else None for name, seen in pilots.items()
    }
    wanted = {
        name: None if spread is None else max(pilot, processes_for(spread, precision))
        for name, spread in spreads.items()
    }
    seconds = {name: seen.replicate_s for name, seen in pilots.items()}
    planned = within({name: n or pilot for name, n in wanted.items()}, seconds, budget_s, behind=pilot)
    return {name: Replicates(wanted=n, planned=planned[name], log_spread=spreads[name]) for name, n in wanted.items()}


def within(
    wanted: Mapping[str, int], seconds: Mapping[str, float], budget_s: float | None, *, behind: int = 0
) -> dict[str, int]:
    """Return what a budget leaves of the replicates wanted; `behind` of each have been run, `seconds` is what one takes.

    It is spent block by block, as the run will: a block in which every benchmark that still wants one has a replicate is
    either paid for as a whole, or is the first that is not run.
    """
    if budget_s is None:
        return dict(wanted)
    blocks, left = behind, budget_s
    while blocks < max(wanted.values(), default=behind):
        left -= math.fsum(seconds[name] for name, n in wanted.items() if n > blocks)
        if left < 0:
            break
        blocks += 1
    return {name: min(n, blocks) for name, n in wanted.items()}
