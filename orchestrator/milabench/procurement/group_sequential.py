"""Tests with looks that are planned ahead: bounds for each look, so that all looks together keep a single error rate.

The statistic at a look is a standard normal z. At information fractions t the looks have the correlation sqrt(t_i / t_j), as sums
of independent increments have. The probability of crossing a bound first at look k is integrated from look to look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from milabench.analysis.intervals import normal_quantile
from milabench.errors import UsageError
from milabench.procurement.gauss_legendre import falling_root, normal_density, normal_tail, points_for, scaled_rule

Sides = Literal[1, 2]

_FAR = 8.5  # standard deviations beyond which a normal distribution has less than 1e-16
_LARGEST = 20.0  # a bound that nothing crosses


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPlan:
    """Looks at information fractions, each with its bound on z: of |z| for two sides, of z for a single side.

    `crossed` is the probability, without any effect, of crossing up to each look, of all sides together.
    """

    fractions: tuple[float, ...]
    bounds: tuple[float, ...]
    sides: Sides
    crossed: tuple[float, ...]


def spending_bounds(fractions: Sequence[float], alpha: float = 0.025, sides: Sides = 1) -> LookPlan:
    """Return bounds at these information fractions that spend alpha after Lan and DeMets (1983), like O'Brien and Fleming.

    Up to a fraction, 2 - 2 Phi(z / sqrt(fraction)) is spent, with z at alpha / 2. Each of two sides spends half.
    """
    _require(fractions, alpha)
    z = normal_quantile(1 - alpha / sides / 2)
    spent = [sides * 2 * normal_tail(z / math.sqrt(fraction)) for fraction in fractions]
    walk, bounds, before = _Walk(sides), [], 0.0
    for fraction, target in zip(fractions, spent, strict=True):
        more, now = target - before, walk

        def excess(bound: float, now: _Walk = now, fraction: float = fraction, more: float = more) -> float:
            return now.crossing(fraction, bound) - more

        bounds.append(falling_root(excess, 0.0, _LARGEST))
        walk, before = walk.beyond(fraction, bounds[-1]), target
    return LookPlan(fractions=tuple(fractions), bounds=tuple(bounds), sides=sides, crossed=tuple(spent))


def _require(fractions: Sequence[float], alpha: float) -> None:
    if not fractions or any(b <= a for a, b in zip([0.0, *fractions], fractions, strict=False)) or fractions[-1] > 1:
        raise UsageError(f"looks at information fractions {list(fractions)}: they rise from above 0 to 1 at most")
    if not 0 < alpha < 1:
        raise UsageError(f"an error rate of {alpha:g}: it is between 0 and 1")


class _Walk:
    """Where the sum z sqrt(t) may be when no bound was crossed so far: places with their probability."""

    def __init__(
        self, sides: Sides, fraction: float = 0.0, places: Sequence[tuple[float, float]] = ((0.0, 1.0),)
    ) -> None:
        self._sides, self._fraction, self._places = sides, fraction, places

    def crossing(self, fraction: float, bound: float) -> float:
        """Return the probability of crossing any bound at the next look."""
        limit, spread = bound * math.sqrt(fraction), math.sqrt(fraction - self._fraction)
        signs = (1, -1) if self._sides == 2 else (1,)
        return math.fsum(
            probability * normal_tail((limit - sign * place) / spread)
            for sign in signs
            for place, probability in self._places
        )

    def beyond(self, fraction: float, bound: float) -> _Walk:
        """Return the walk after a look that crossed nothing."""
        spread, reach = math.sqrt(fraction - self._fraction), _FAR * math.sqrt(fraction)
        high = min(bound * math.sqrt(fraction), reach)
        low = -high if self._sides == 2 else -reach
        if high <= low:
            return _Walk(self._sides, fraction, ())
        places = [
            (to, weight / spread * math.fsum(p * normal_density((to - at) / spread) for at, p in self._places))
            for to, weight in scaled_rule(low, high, points_for((high - low) / spread))
        ]
        return _Walk(self._sides, fraction, places)
