"""How many processes a precision takes, computed once from a pilot (Stein's two stages); docs/methodology.md, 1.0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.intervals import t_quantile
from orchestrator.analysis.spread import log_stdev

PILOT = 5
MOST = 10_000  # nobody runs so many; a spread that asks for more is no spread but a fault


def processes_for(log_spread: float, precision: float, *, level: float = 0.95) -> int:
    """The least n >= 2 with t_{(1+level)/2, n-1} s / sqrt n <= ln(1 + e): the mean is known to within `precision`.

    `log_spread` s is the standard deviation of the logarithms of the rates of processes, `precision` e relative, above 0.
    """
    return _least(lambda n: t_quantile((1 + level) / 2, n - 1) * log_spread / math.sqrt(n), precision)


def processes_for_ratio(log_spread: float, precision: float, *, level: float = 0.95) -> int:
    """The least n on each side for a ratio of two means that is known to within `precision`, both with this spread."""
    return _least(lambda n: t_quantile((1 + level) / 2, 2 * n - 2) * log_spread * math.sqrt(2 / n), precision)


def _least(half: Callable[[int], float], precision: float) -> int:
    wanted = math.log1p(precision)
    low, high = 1, 2
    while half(high) > wanted:
        if high >= MOST:
            return MOST
        low, high = high, min(2 * high, MOST)
    while high - low > 1:  # the half-width falls with n
        middle = (low + high) // 2
        low, high = (middle, high) if half(middle) > wanted else (low, middle)
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """What the pilot of a benchmark showed: the rates of its processes, how many run side by side, seconds of one replicate."""

    rates: Sequence[float]
    instances: int
    replicate_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicates:
    """How often a benchmark is run: `wanted` for the precision, `planned` within the budget; None where no rate says."""

    log_spread: float | None
    wanted: int | None
    planned: int

    @property
    def is_capped(self) -> bool:
        """Whether the budget does not reach for the precision."""
        return self.wanted is not None and self.planned < self.wanted


def replicates(
    pilots: Mapping[str, Pilot], *, precision: float, budget_s: float | None = None, pilot: int = PILOT
) -> dict[str, Replicates]:
    """The number of replicates of each benchmark, the pilot's among them, which stays fixed from here on.

    `budget_s` is what is left after the pilot. It is spent block by block, as the run will: a block in which every
    benchmark that still wants one has a replicate is either paid for as a whole, or is the first that is not run.
    """
    wanted: dict[str, int | None] = {}
    spreads: dict[str, float | None] = {}
    for name, seen in pilots.items():
        spread = log_stdev(seen.rates) if len(seen.rates) >= 2 else None
        spreads[name] = spread
        wanted[name] = (
            None if spread is None else max(pilot, -(-processes_for(spread, precision) // max(1, seen.instances)))
        )
    last = max((n for n in wanted.values() if n is not None), default=pilot)
    blocks, left = pilot, math.inf if budget_s is None else budget_s
    while blocks < last:
        left -= math.fsum(pilots[name].replicate_s for name, n in wanted.items() if n is not None and n > blocks)
        if left < 0:
            break
        blocks += 1
    return {
        name: Replicates(log_spread=spreads[name], wanted=n, planned=pilot if n is None else min(n, blocks))
        for name, n in wanted.items()
    }
