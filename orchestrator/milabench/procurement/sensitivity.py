"""Which input a result hangs on: one at a time, and by shares of its variance (Sobol 2001; Saltelli 2010, Jansen 1999).

Inputs are independent. The shares are estimated from points of Sobol's sequence with random direction numbers and a random shift;
eight sequences of their own seeds give the estimate and its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from milabench.analysis.intervals import Interval, normal_quantile, t_quantile
from milabench.analysis.sample_statistics import mean, stdev
from milabench.errors import UsageError

Result = Callable[[Mapping[str, float]], float]
Shape = Literal["uniform", "normal", "lognormal", "triangular"]

SEQUENCES = 8
_BITS = 52
_MOST_INPUTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainInput:
    """An input: its value, and from where to where it may be.

    `low` and `high` are the ends of the uniform and the triangular shape (whose peak is the value), and the 95 % interval of the
    normal and the lognormal one, around their middle.
    """

    value: float
    low: float
    high: float
    shape: Shape = "uniform"

    def __post_init__(self) -> None:
        """Raise UsageError unless low <= value <= high, and, of a lognormal one, all above zero."""
        if not self.low <= self.value <= self.high:
            raise UsageError(
                f"an input of {self.value:g} from {self.low:g} to {self.high:g}: the value lies between the two"
            )
        if self.shape == "lognormal" and not self.low > 0:
            raise UsageError(f"a lognormal input from {self.low:g} to {self.high:g}: it is above zero")

    def quantile(self, p: float) -> float:
        """Return the value below which it lies with this probability, 0 < p < 1."""
        return _QUANTILES[self.shape](self, p)


def _normal(low: float, high: float, p: float) -> float:
    return (low + high) / 2 + (high - low) / 2 * normal_quantile(p) / normal_quantile(0.975)


def _triangular(given: UncertainInput, p: float) -> float:
    width = given.high - given.low
    if not width:
        return given.value
    if p * width < given.value - given.low:
        return given.low + math.sqrt(p * width * (given.value - given.low))
    return given.high - math.sqrt((1 - p) * width * (given.high - given.value))


_QUANTILES: Mapping[str, Callable[[UncertainInput, float], float]] = {
    "uniform": lambda given, p: given.low + p * (given.high - given.low),
    "normal": lambda given, p: _normal(given.low, given.high, p),
    "lognormal": lambda given, p: math.exp(_normal(math.log(given.low), math.log(given.high), p)),
    "triangular": _triangular,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """The results at the low and at the high end of one input, all others at their value."""

    name: str
    low: float
    high: float

    @property
    def width(self) -> float:
        """How far the two are apart."""
        return abs(self.high - self.low)


def one_at_a_time(result: Result, inputs: Mapping[str, UncertainInput]) -> tuple[Swing, ...]:
    """Return the swing of each input, the widest first. Raises UsageError where the result is not a finite number."""
    centre = {name: given.value for name, given in inputs.items()}
    swings = [
        Swing(
            name=name,
            low=_finite(result, {**centre, name: given.low}),
            high=_finite(result, {**centre, name: given.high}),
        )
        for name, given in inputs.items()
    ]
    return tuple(sorted(swings, key=lambda swing: -swing.width))


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceShare:
    """The shares of the result's variance that go back to one input, 0 to 1, with their standard errors.

    `first` is what would go if the input were known; `total` what would stay if all the others were. Estimates of small shares
    may be below zero by their error.
    """

    name: str
    first: float
    first_error: float
    total: float
    total_error: float

    def interval(self, which: Literal["first", "total"], level: float = 0.95) -> Interval:
        """Return the interval of a share by Student's t over the sequences."""
        centre, error = (self.first, self.first_error) if which == "first" else (self.total, self.total_error)
        half = t_quantile((1 + level) / 2, SEQUENCES - 1) * error
        return centre - half, centre + half


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceShares:
    """The mean and the variance of the result, and which share of it goes back to which input, the largest total first."""

    mean: float
    variance: float
    shares: tuple[VarianceShare, ...]
    evaluations: int


def variance_shares(
    result: Result, inputs: Mapping[str, UncertainInput], *, points: int = 1024, seed: int = 0
) -> VarianceShares:
    """Return Sobol's first and total indices; `points` of each sequence are rounded up to a power of 2.

    The result is evaluated SEQUENCES x points x (inputs + 2) times. One that does not vary has shares of 0. Raises UsageError
    without an input, above 100 of them, and where the result is not a finite number.
    """
    if not 0 < len(inputs) <= _MOST_INPUTS:
        raise UsageError(f"variance shares of {len(inputs)} inputs: 1 to {_MOST_INPUTS}")
    exponent = max(4, math.ceil(math.log2(points)))
    sequences = [_indices(result, inputs, exponent, seed * SEQUENCES + index) for index in range(SEQUENCES)]
    shares = []
    for index, name in enumerate(inputs):
        first = [each.first[index] for each in sequences]
        total = [each.total[index] for each in sequences]
        shares.append(
            VarianceShare(
                name=name,
                first=mean(first),
                first_error=stdev(first) / math.sqrt(SEQUENCES),
                total=mean(total),
                total_error=stdev(total) / math.sqrt(SEQUENCES),
            )
        )
    return VarianceShares(
        mean=mean([each.mean for each in sequences]),
        variance=mean([each.variance for each in sequences]),
        shares=tuple(sorted(shares, key=lambda share: -share.total)),
        evaluations=SEQUENCES * 2**exponent * (len(inputs) + 2),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Indices:
    mean: float
    variance: float
    first: tuple[float, ...]
    total: tuple[float, ...]


def _indices(result: Result, inputs: Mapping[str, UncertainInput], exponent: int, seed: int) -> _Indices:
    """Return the indices from one sequence: two points a and b at a time, and a with one coordinate of b."""
    names = list(inputs)
    a_values: list[float] = []
    b_values: list[float] = []
    mixed: list[list[float]] = [[] for _ in names]
    for point in sobol_points(2 * len(names), exponent, seed):
        a = {name: inputs[name].quantile(p) for name, p in zip(names, point, strict=False)}
        b = {name: inputs[name].quantile(p) for name, p in zip(names, point[len(names) :], strict=True)}
        a_values.append(_finite(result, a))
        b_values.append(_finite(result, b))
        for name, values in zip(names, mixed, strict=True):
            values.append(_finite(result, {**a, name: b[name]}))
    centre = mean([*a_values, *b_values])
    variance = mean([(value - centre) ** 2 for value in (*a_values, *b_values)])
    if not variance:
        return _Indices(mean=centre, variance=0.0, first=(0.0,) * len(names), total=(0.0,) * len(names))
    # From the mean, so that a large constant part of the result cancels.
    first = tuple(
        mean([(b - centre) * (m - a) for a, b, m in zip(a_values, b_values, values, strict=True)]) / variance
        for values in mixed
    )
    total = tuple(
        mean([(a - m) ** 2 for a, m in zip(a_values, values, strict=True)]) / 2 / variance for values in mixed
    )
    return _Indices(mean=centre, variance=variance, first=first, total=total)


def _finite(result: Result, values: Mapping[str, float]) -> float:
    value = result(values)
    if not math.isfinite(value):
        given = ", ".join(f"{name}={each:g}" for name, each in values.items())
        raise UsageError(f"the result is {value} at {given}: narrow the inputs so that it is a number everywhere")
    return value


def sobol_points(dimensions: int, exponent: int, seed: int = 0) -> Iterator[tuple[float, ...]]:
    """Yield 2^exponent points between 0 and 1: a digital sequence after Sobol, shifted; the same for the same seed.

    In each dimension alone, each of the 2^exponent equal intervals has one point.
    """
    numbers = _random_bits(seed)
    directions = [_directions(polynomial, exponent, numbers) for polynomial in _primitive_polynomials(dimensions)]
    place = [next(numbers) for _ in directions]
    for index in range(1, 2**exponent + 1):
        yield tuple((bits + 0.5) / 2**_BITS for bits in place)
        changed = (index & -index).bit_length() - 1  # the digit that the Gray code changes
        if changed < exponent:
            place = [bits ^ column[changed] for bits, column in zip(place, directions, strict=True)]


def _directions(polynomial: int, exponent: int, numbers: Iterator[int]) -> tuple[int, ...]:
    """Return the direction numbers by the recurrence of a primitive polynomial, the first ones random and odd."""
    degree = polynomial.bit_length() - 1
    odd: list[int] = []
    for index in range(exponent):
        if polynomial == 1:
            odd.append(1)
        elif index < degree:
            odd.append((next(numbers) & ((1 << index) - 1)) << 1 | 1)
        else:
            value = odd[index - degree] ^ odd[index - degree] << degree
            for back in range(1, degree):
                if polynomial >> (degree - back) & 1:
                    value ^= odd[index - back] << back
            odd.append(value)
    return tuple(value << (_BITS - 1 - index) for index, value in enumerate(odd))


@lru_cache(maxsize=4)
def _primitive_polynomials(count: int) -> Sequence[int]:
    """Return 1 and the first primitive polynomials over two elements, as bits: x is of order 2^degree - 1 modulo each."""
    polynomials, degree = [1], 1
    while len(polynomials) < count:
        for middle in range(1 << (degree - 1)):
            candidate = 1 << degree | middle << 1 | 1
            if len(polynomials) < count and _order_of_x(candidate, degree) == (1 << degree) - 1:
                polynomials.append(candidate)
        degree += 1
    return tuple(polynomials)


def _order_of_x(polynomial: int, degree: int) -> int:
    power, order = 1, 0
    while order <= 1 << degree:
        power <<= 1
        order += 1
        if power >> degree:
            power ^= polynomial
        if power == 1:
            break
    return order


def _random_bits(seed: int) -> Iterator[int]:
    """Yield numbers of 52 bits after splitmix64 (Steele, Lea, Flood 2014), which is the same on every machine."""
    mask, state = (1 << 64) - 1, seed & ((1 << 64) - 1)
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & mask
        yield (mixed ^ mixed >> 31) >> (64 - _BITS)
