"""Weighted least squares with few parameters: Levenberg's and Marquardt's method over a curve that gives its own gradient.

Small and dense: three parameters, some dozens of points. Unaware of the meaning of the curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Vector = tuple[float, ...]
Curve = Callable[[Vector, float], tuple[float, Vector] | None]
"""(parameters, x) -> the value and its derivative by each parameter. None where the curve is not defined."""

_MOST_ITERATIONS = 500
_SMALLEST_STEP = 1e-13  # of the size of the data, below which a step changes nothing
_MOST_DAMPING = 1e14
_SINGULAR = 1e-13  # a pivot of a matrix whose diagonal is 1, below which columns say the same


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """The parameters of least squares. `squares` is the weighted sum of squared residuals, `inverse` the inverse of J'WJ."""

    parameters: Vector
    residuals: Vector
    squares: float
    inverse: tuple[Vector, ...]

    def variance_of(self, gradient: Sequence[float]) -> float:
        """Return g'(J'WJ)^-1 g: times the variance of an observation of weight 1 it is the curve's own variance."""
        return math.fsum(
            left * entry * right
            for left, row in zip(gradient, self.inverse, strict=True)
            for entry, right in zip(row, gradient, strict=True)
        )


def least_squares(
    curve: Curve, start: Vector, xs: Sequence[float], ys: Sequence[float], weights: Sequence[float]
) -> LeastSquares | None:
    """Return the fit that is nearest below `start`. None where it does not converge or parameters cannot be told apart."""
    point = _Linearised.of(curve, start, xs, ys, weights)
    if point is None:
        return None
    size = math.sqrt(math.fsum(w * y * y for w, y in zip(weights, ys, strict=True)))
    damping = 1e-3
    for _ in range(_MOST_ITERATIONS):
        step = point.step(damping)
        if step is None:
            return None
        moved = tuple(value + change for value, change in zip(point.parameters, step, strict=True))
        is_small = point.length(step) <= _SMALLEST_STEP * size
        candidate = _Linearised.of(curve, moved, xs, ys, weights)
        if candidate is not None and candidate.squares <= point.squares:
            point, damping = candidate, damping / 10
        else:
            damping *= 10
        if is_small or damping > _MOST_DAMPING:
            inverse = _inverse(point.normal)
            return None if inverse is None else LeastSquares(point.parameters, point.residuals, point.squares, inverse)
    return None


@dataclass(frozen=True, slots=True)
class _Linearised:
    """The curve around a set of parameters: residuals, J'WJ and J'Wr."""

    parameters: Vector
    residuals: Vector
    squares: float
    normal: tuple[Vector, ...]
    towards: Vector

    @classmethod
    def of(
        cls, curve: Curve, parameters: Vector, xs: Sequence[float], ys: Sequence[float], weights: Sequence[float]
    ) -> _Linearised | None:
        points = [curve(parameters, x) for x in xs]
        defined = [point for point in points if point is not None]
        if len(defined) < len(points):
            return None
        residuals = tuple(y - value for y, (value, _) in zip(ys, defined, strict=True))
        squares = math.fsum(w * r * r for w, r in zip(weights, residuals, strict=True))
        if not math.isfinite(squares):
            return None
        columns = list(zip(*(gradient for _, gradient in defined), strict=True))
        normal = tuple(
            tuple(math.fsum(w * a * b for w, a, b in zip(weights, left, right, strict=True)) for right in columns)
            for left in columns
        )
        towards = tuple(
            math.fsum(w * a * r for w, a, r in zip(weights, column, residuals, strict=True)) for column in columns
        )
        return cls(parameters, residuals, squares, normal, towards)

    def step(self, damping: float) -> Vector | None:
        """Return the change of the parameters that the linearised curve asks for."""
        damped = tuple(
            tuple(entry * (1 + damping) if i == j else entry for j, entry in enumerate(row))
            for i, row in enumerate(self.normal)
        )
        inverse = _inverse(damped)
        if inverse is None:
            return None
        return tuple(math.fsum(a * b for a, b in zip(row, self.towards, strict=True)) for row in inverse)

    def length(self, step: Vector) -> float:
        """Return how far a step moves the curve at most, in weighted units of y."""
        return max(abs(change) * math.sqrt(self.normal[i][i]) for i, change in enumerate(step))


def _inverse(matrix: tuple[Vector, ...]) -> tuple[Vector, ...] | None:
    """Return the inverse of a positive definite matrix by Gauss and Jordan. None where it has none."""
    size = len(matrix)
    if any(matrix[i][i] <= 0 for i in range(size)):
        return None
    # Parameters differ by orders of magnitude: with a diagonal of 1, a pivot says how much a column adds to those before it.
    scale = [1 / math.sqrt(matrix[i][i]) for i in range(size)]
    rows = [
        [matrix[i][j] * scale[i] * scale[j] for j in range(size)] + [float(i == j) for j in range(size)]
        for i in range(size)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        if abs(rows[pivot][i]) < _SINGULAR:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [entry / rows[i][i] for entry in rows[i]]
        for k in range(size):
            if k != i:
                factor = rows[k][i]
                rows[k] = [entry - factor * own for entry, own in zip(rows[k], rows[i], strict=True)]
    return tuple(tuple(rows[i][size + j] * scale[i] * scale[j] for j in range(size)) for i in range(size))
