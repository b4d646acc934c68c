"""Tests with looks that are planned ahead: bounds for each look, so that all of them together keep one error rate.

The statistic at a look is a standard normal z; at information fractions t the looks have the correlation sqrt(t_i / t_j), as sums
of independent increments have. The probability of crossing a bound first at look k is integrated from look to look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from milabench.analysis.intervals import normal_quantile
from milabench.errors import UsageError
from milabench.procurement.gauss_legendre import falling_root, normal_density, normal_tail, points_for, scaled_rule

Sides = Literal[1, 2]

_FAR = 8.5  # standard deviations beyond which a normal distribution has less than 1e-16
_LARGEST = 20.0  # a bound that nothing crosses

SHAPES: Mapping[str, Callable[[float], float]] = {
    "pocock": lambda fraction: 1.0,
    "obrien-fleming": lambda fraction: 1 / math.sqrt(fraction),
}
"""Bounds as a multiple of the last one, by information fraction: Pocock (1977), O'Brien and Fleming (1979)."""

SPENDING: Mapping[str, Callable[[float, float], float]] = {
    "pocock": lambda fraction, alpha: alpha * math.log1p((math.e - 1) * fraction),
    "obrien-fleming": lambda fraction, alpha: 2 * normal_tail(normal_quantile(1 - alpha / 2) / math.sqrt(fraction)),
}
"""How much of alpha, of one side, is spent up to an information fraction; Lan and DeMets (1983)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPlan:
    """Looks at information fractions, each with its bound on z: of |z| for two sides, of z for one.

    `crossed` is the probability, without any effect, of crossing up to each look, of all sides together.
    """

    fractions: tuple[float, ...]
    bounds: tuple[float, ...]
    sides: Sides
    crossed: tuple[float, ...]

    def first_look_over(self, statistics: Sequence[float]) -> int | None:
        """Return the number, from 1, of the first look whose z is at or beyond its bound; None so far."""
        for look, (z, bound) in enumerate(zip(statistics, self.bounds, strict=False), start=1):
            if (abs(z) if self.sides == 2 else z) >= bound:
                return look
        return None

    def power(self, effect: float) -> tuple[float, float]:
        """Return the probability of crossing the upper bound at some look, and the expected fraction at the end.

        `effect` is the mean of z at fraction 1: the true difference in standard errors of the whole sample.
        """
        walk = _Walk(self.sides, effect)
        upper, expected, before = 0.0, 0.0, 0.0
        for fraction, bound in zip(self.fractions, self.bounds, strict=True):
            expected += (fraction - before) * walk.undecided
            upper += walk.upper(fraction, bound)
            walk = walk.beyond(fraction, bound)
            before = fraction
        return upper, expected


def shaped_bounds(shape: str, looks: int, alpha: float = 0.05, sides: Sides = 2) -> LookPlan:
    """Return bounds of one of SHAPES for equally spaced looks; alpha is of both sides together."""
    if shape not in SHAPES:
        raise UsageError(f"unknown shape of bounds '{shape}'; known: {', '.join(SHAPES)}")
    fractions = tuple((look + 1) / looks for look in range(looks))
    _require(fractions, alpha)
    shares = [SHAPES[shape](fraction) for fraction in fractions]

    def excess(last: float) -> float:
        return _crossed(fractions, [last * share for share in shares], sides)[-1] - alpha

    last = falling_root(excess, 0.0, normal_quantile(1 - alpha / looks / sides) + 1e-9)
    bounds = tuple(last * share for share in shares)
    return LookPlan(fractions=fractions, bounds=bounds, sides=sides, crossed=_crossed(fractions, bounds, sides))


def spending_bounds(spending: str, fractions: Sequence[float], alpha: float = 0.025, sides: Sides = 1) -> LookPlan:
    """Return bounds at these information fractions that spend alpha as one of SPENDING; of two sides each spends half of it."""
    if spending not in SPENDING:
        raise UsageError(f"unknown spending function '{spending}'; known: {', '.join(SPENDING)}")
    _require(fractions, alpha)
    spent = [sides * SPENDING[spending](fraction, alpha / sides) for fraction in fractions]
    walk, bounds, before = _Walk(sides), [], 0.0
    for fraction, target in zip(fractions, spent, strict=True):
        more, now = target - before, walk

        def excess(bound: float, now: _Walk = now, fraction: float = fraction, more: float = more) -> float:
            return now.crossing(fraction, bound) - more

        bounds.append(falling_root(excess, 0.0, _LARGEST))
        walk, before = walk.beyond(fraction, bounds[-1]), target
    return LookPlan(fractions=tuple(fractions), bounds=tuple(bounds), sides=sides, crossed=tuple(spent))


def error_of_bounds(fractions: Sequence[float], bounds: Sequence[float], sides: Sides = 2) -> float:
    """Return how often such bounds are crossed without any effect: what looking again and again at one bound costs."""
    _require(fractions, 0.5)
    return _crossed(fractions, bounds, sides)[-1]


def _require(fractions: Sequence[float], alpha: float) -> None:
    if not fractions or any(b <= a for a, b in zip([0.0, *fractions], fractions, strict=False)) or fractions[-1] > 1:
        raise UsageError(f"looks at information fractions {list(fractions)}: they rise from above 0 to 1 at most")
    if not 0 < alpha < 1:
        raise UsageError(f"an error rate of {alpha:g}: it is between 0 and 1")


def _crossed(fractions: Sequence[float], bounds: Sequence[float], sides: Sides) -> tuple[float, ...]:
    walk, total, crossed = _Walk(sides), 0.0, []
    for fraction, bound in zip(fractions, bounds, strict=True):
        total += walk.crossing(fraction, bound)
        crossed.append(total)
        walk = walk.beyond(fraction, bound)
    return tuple(crossed)


class _Walk:
    """Where the sum z sqrt(t) may be when no bound was crossed so far: places with their probability."""

    def __init__(
        self,
        sides: Sides,
        effect: float = 0.0,
        fraction: float = 0.0,
        places: Sequence[tuple[float, float]] = ((0.0, 1.0),),
    ) -> None:
        self._sides, self._effect, self._fraction, self._places = sides, effect, fraction, places

    @property
    def undecided(self) -> float:
        return math.fsum(probability for _, probability in self._places)

    def upper(self, fraction: float, bound: float) -> float:
        """Return the probability of crossing the upper bound at the next look."""
        return self._over(bound * math.sqrt(fraction), fraction, 1)

    def crossing(self, fraction: float, bound: float) -> float:
        """Return the probability of crossing any bound at the next look."""
        lower = self._over(bound * math.sqrt(fraction), fraction, -1) if self._sides == 2 else 0.0
        return self.upper(fraction, bound) + lower

    def _over(self, limit: float, fraction: float, sign: int) -> float:
        more = fraction - self._fraction
        drift, spread = self._effect * more, math.sqrt(more)
        return math.fsum(
            probability * normal_tail((limit - sign * (place + drift)) / spread) for place, probability in self._places
        )

    def beyond(self, fraction: float, bound: float) -> _Walk:
        """Return the walk after a look that crossed nothing."""
        more = fraction - self._fraction
        drift, spread = self._effect * more, math.sqrt(more)
        high = bound * math.sqrt(fraction)
        reach = _FAR * math.sqrt(fraction)
        middle = self._effect * fraction
        high = min(high, middle + reach)
        low = max(-bound * math.sqrt(fraction), middle - reach) if self._sides == 2 else middle - reach
        if high <= low:
            return _Walk(self._sides, self._effect, fraction, ())
        places = [
            (
                to,
                weight / spread * math.fsum(p * normal_density((to - at - drift) / spread) for at, p in self._places),
            )
            for to, weight in scaled_rule(low, high, points_for((high - low) / spread))
        ]
        return _Walk(self._sides, self._effect, fraction, places)
