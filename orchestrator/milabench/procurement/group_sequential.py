"""Tests with looks that are planned ahead: a bound for each look, so that all looks together keep a single error rate.

The statistic at a look is a standard normal z. At information fractions t the looks have the correlation sqrt(t_i / t_j), as sums
of independent increments have. The probability of crossing a bound first at look k is integrated from look to look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from milabench.analysis.intervals import normal_quantile
from milabench.procurement.gauss_legendre import normal_density, normal_tail, points_for, scaled_rule

_FAR = 8.5  # standard deviations beyond which a normal distribution has less than 1e-16
_LARGEST = 20.0  # a bound that nothing crosses
_HALVINGS = 52  # of the interval up to it: to the last digits


def spending_bounds(fractions: Sequence[float], alpha: float = 0.025) -> tuple[float, ...]:
    """Return bounds on z at rising information fractions that spend alpha after Lan and DeMets (1983), like O'Brien and Fleming.

    Up to a fraction, 2 - 2 Phi(z / sqrt(fraction)) is spent, with z at alpha / 2.
    """
    z = normal_quantile(1 - alpha / 2)
    walk, bounds, before = _Walk(), list[float](), 0.0
    for fraction in fractions:
        spent = 2 * normal_tail(z / math.sqrt(fraction))
        bounds.append(walk.bound(fraction, spent - before))
        walk, before = walk.below(fraction, bounds[-1]), spent
    return tuple(bounds)


@dataclass(frozen=True, slots=True)
class _Walk:
    """Where the sum z sqrt(t) may be when no bound was crossed so far: places with their probability."""

    fraction: float = 0.0
    places: Sequence[tuple[float, float]] = ((0.0, 1.0),)

    def crossing(self, fraction: float, bound: float) -> float:
        """Return the probability of crossing a bound at the next look."""
        limit, spread = bound * math.sqrt(fraction), math.sqrt(fraction - self.fraction)
        return math.fsum(chance * normal_tail((limit - place) / spread) for place, chance in self.places)

    def bound(self, fraction: float, chance: float) -> float:
        """Return the bound that is crossed at the next look with this probability."""
        low, high = 0.0, _LARGEST
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.crossing(fraction, middle) > chance else (low, middle)
        return high

    def below(self, fraction: float, bound: float) -> _Walk:
        """Return the walk after a look that crossed nothing."""
        spread, low = math.sqrt(fraction - self.fraction), -_FAR * math.sqrt(fraction)
        high = min(bound, _FAR) * math.sqrt(fraction)
        places = [
            (to, weight / spread * math.fsum(p * normal_density((to - at) / spread) for at, p in self.places))
            for to, weight in scaled_rule(low, high, points_for((high - low) / spread))
        ]
        return _Walk(fraction, places)
