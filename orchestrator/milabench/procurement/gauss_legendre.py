"""Integrals over an interval by the rule of Gauss and Legendre. The normal distribution."""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(maxsize=64)
def gauss_legendre(points: int) -> tuple[tuple[float, float], ...]:
    """Return nodes between -1 and 1 with their weights. Exact for polynomials of degree 2 points - 1."""
    rule: list[tuple[float, float]] = []
    for index in range(points):
        x = math.cos(math.pi * (index + 0.75) / (points + 0.5))
        slope = 1.0
        for _ in range(100):  # Newton's method from a place so near the root that few steps are taken
            before, value = 1.0, x
            for degree in range(2, points + 1):
                before, value = value, ((2 * degree - 1) * x * value - (degree - 1) * before) / degree
            slope = points * (x * value - before) / (x * x - 1) if points > 1 else 1.0
            step = value / slope
            x -= step
            if abs(step) < 1e-15:
                break
        rule.append((x, 2 / ((1 - x * x) * slope * slope)))
    return tuple(rule)


def scaled_rule(low: float, high: float, points: int) -> list[tuple[float, float]]:
    """Return the nodes and weights of an integral from low to high."""
    middle, half = (low + high) / 2, (high - low) / 2
    return [(middle + half * x, half * weight) for x, weight in gauss_legendre(points)]


def normal_tail(z: float) -> float:
    """Return P(Z > z) of the standard normal distribution."""
    return math.erfc(z / math.sqrt(2)) / 2


def normal_density(z: float) -> float:
    """Return the density of the standard normal distribution."""
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def points_for(width: float) -> int:
    """Return how many nodes an interval needs under a normal kernel. `width` is in standard deviations of the kernel.

    Then the result of 20 steps of recursive integration has an error of about 1e-15.
    """
    return 24 + 3 * math.ceil(width)
