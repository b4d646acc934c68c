"""Rates of more nodes or devices: a law of scaling fitted to measured counts, and the interval of its projections.

The laws are rows of `LAWS`. Several may fit the measured counts and differ beyond: the intervals of a chosen law are over all
laws that the measurements do not rule out. A projected value is a `Projected`, which no function over measured values takes.

How measured values count. Each count is a single datum: the geometric mean of its repeats, because the error of a law at a
count is common to all repeats there. The weight of a count is 1 / ((m u)^2 + e^2). e is its own standard error: of its
repeats, whose relative spread is pooled over all counts, or the given error. m is the error of the law itself, chosen
so that the weighted squares add up to n - p (Paule and Mandel 1982). u is the value where noise is relative, as of repeats
is, else 1. Without repeats or errors, absolute noise is ordinary least squares, and m^2 = s^2 = SSR / (n - p).
Parameters have the covariance C = (J'WJ)^-1, intervals Student's t with n - p degrees of freedom: the curve f +- t sqrt(g'Cg). A
new repeat adds how far the law is off and its own scatter: f +- sqrt(t^2 ((m u)^2 + g'Cg) + t'^2 (spread f)^2), t' with the
degrees of the repeats. n - p < 1: no
interval. A parameter at its bound: no interval either, for the derivation supposes that it could move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

from milabench.analysis.intervals import Interval, incomplete_beta, t_quantile
from milabench.analysis.json_codec import JsonKey
from milabench.analysis.sample_statistics import geometric_mean, pooled_log_stdev
from milabench.errors import UsageError
from milabench.procurement.least_squares import Curve, LeastSquares, Vector, least_squares

Noise = Literal["relative", "absolute"]
"""The quantity that is equal at all counts: the errors as shares of the values, or in the unit of the values."""
LEVEL = 0.95
"""Of all intervals."""
FURTHEST = 8
"""How many times the largest measured count a projection may reach, unless a bound is declared."""
_MOST_NEWTON = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPoint:
    """The measurement at a count of nodes or devices: a value above zero for each repeat, all in the same unit.

    Throughput.
    """

    count: float
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        """The geometric mean of the repeats."""
        return geometric_mean(self.values)


def universal_scalability(parameters: Mapping[str, float], count: float) -> tuple[float, Mapping[str, float]] | None:
    """Return X(N) = g N / (1 + a (N - 1) + b N (N - 1)) and its derivatives, with a and b 0 where they are not given.

    a is contention, b coherence, g the value at count 1 (Gunther). Without b it is Amdahl's law, with a as the serial
    share of the time at count 1. Without both it is ideal. None where the denominator is not above zero.
    """
    a, b, g = parameters.get("a", 0.0), parameters.get("b", 0.0), parameters["g"]
    below = 1 + a * (count - 1) + b * count * (count - 1)
    if below <= 0:
        return None
    value = g * count / below
    slopes = {"a": -value * (count - 1) / below, "b": -value * count * (count - 1) / below, "g": count / below}
    return value, slopes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingLaw:
    """A row of `LAWS`: the formula of `universal_scalability` with these parameters, of which `g` is the last."""

    formula: str
    parameters: tuple[str, ...]


LAWS: Mapping[str, ScalingLaw] = {
    "ideal": ScalingLaw(formula="g N", parameters=("g",)),
    "amdahl": ScalingLaw(formula="g N / (1 + a (N - 1))", parameters=("a", "g")),
    "usl": ScalingLaw(formula="g N / (1 + a (N - 1) + b N (N - 1))", parameters=("a", "b", "g")),
}


@dataclass(frozen=True, kw_only=True)
class ScalingFit:
    """A law through measured points. `freedom` is n - p, n being counts.

    `misfit` is how far the law is off, the standard deviation m above, in the unit of the values: without repeats and errors the
    residual standard error. It is None without a degree of freedom. `spread` is the relative spread of a repeat, which stands on
    `spread_freedom`. `at_bound` are the
    parameters that would be below zero and were held at it.
    """

    law: str
    points: tuple[CountPoint, ...]
    parameters: Mapping[str, float]
    free: tuple[str, ...]
    at_bound: tuple[str, ...]
    misfit: float | None
    spread: float
    spread_freedom: float
    noise: Noise
    solution: LeastSquares

    @property
    def freedom(self) -> int:
        """Degrees of freedom: measured counts less parameters."""
        return len(self.points) - len(LAWS[self.law].parameters)

    @property
    def largest(self) -> float:
        """The largest measured count."""
        return self.points[-1].count

    @property
    def why_no_interval(self) -> str:
        """Why it has no intervals. Empty where it has them."""
        if self.at_bound:
            names = " and ".join(self.at_bound)
            held = "is" if len(self.at_bound) == 1 else "are"
            return f"{names} would be below zero and {held} held at 0: no interval holds at a bound"
        if self.misfit is None:
            counts, parameters = len(self.points), len(LAWS[self.law].parameters)
            return f"{counts} measured counts for {parameters} parameters leave no degree of freedom"
        return ""

    @cached_property
    def standard_errors(self) -> Mapping[str, float]:
        """The standard error of each parameter. Empty where there is no interval."""
        if self.why_no_interval:
            return {}
        return {name: math.sqrt(self.solution.inverse[i][i]) for i, name in enumerate(self.free)}

    def parameter_interval(self, name: str) -> Interval | None:
        """Return the interval of a parameter by Student's t."""
        if name not in self.standard_errors:
            return None
        half = t_quantile((1 + LEVEL) / 2, self.freedom) * self.standard_errors[name]
        return self.parameters[name] - half, self.parameters[name] + half

    def at(self, count: float) -> float:
        """Return the curve at a count."""
        return _evaluate(self.law, self.parameters, count)[0]

    def confidence(self, count: float) -> Interval | None:
        """Return the interval of the curve, the mean of many repeats if the law were true."""
        return self._interval(count, is_new=False)

    def prediction(self, count: float) -> Interval | None:
        """Return the interval of a new repeat."""
        return self._interval(count, is_new=True)

    def _interval(self, count: float, *, is_new: bool) -> Interval | None:
        if self.why_no_interval or self.misfit is None:
            return None
        value, slopes = _evaluate(self.law, self.parameters, count)
        squares = self.solution.variance_of([slopes[name] for name in self.free])
        if is_new:
            squares += (self.misfit * (value if self.noise == "relative" else 1)) ** 2
        half = t_quantile((1 + LEVEL) / 2, self.freedom) * math.sqrt(squares)
        if is_new and self.spread:
            half = math.hypot(half, t_quantile((1 + LEVEL) / 2, self.spread_freedom) * self.spread * value)
        return value - half, value + half

    @property
    def peak(self) -> tuple[float, float] | None:
        """The count beyond which more is less, and the value there: sqrt((1 - a) / b). None where there is none."""
        a, b = self.parameters.get("a", 0.0), self.parameters.get("b", 0.0)
        if b <= 0 or a >= 1:
            return None
        count = math.sqrt((1 - a) / b)
        return count, self.at(count)

    @property
    def limit(self) -> float | None:
        """The limit of contention alone for any count: g / a. None without contention."""
        a = self.parameters.get("a", 0.0)
        return self.parameters["g"] / a if a > 0 else None


def _evaluate(law: str, parameters: Mapping[str, float], count: float) -> tuple[float, Mapping[str, float]]:
    point = universal_scalability(parameters, count)
    if point is None:
        raise UsageError(f"the fit of {law} has no value at {count:g}")
    return point


def fit_law(
    law: str, points: Sequence[CountPoint], *, noise: Noise = "relative", is_bounded: bool = True
) -> ScalingFit | None:
    """Return the fit of a law of LAWS to points at two rising counts or more.

    None where there are fewer counts than parameters or they cannot be told apart. `is_bounded=False` lets contention and
    coherence go below zero, where the curve goes beyond possible projections.
    """
    if len(points) < len(LAWS[law].parameters):
        return None
    # Contention and coherence: by nature g is above zero.
    bounded = LAWS[law].parameters[:-1] if is_bounded else ()
    candidates: list[ScalingFit] = []
    # With three parameters at most, all ways to hold some at their bound are few enough to try.
    for held in chain.from_iterable(combinations(bounded, size) for size in range(len(bounded) + 1)):
        fit = _fit_free(law, tuple(points), noise, held)
        if fit is None or any(fit.parameters[name] < 0 for name in bounded):
            continue
        if not held:
            return fit
        candidates.append(fit)
    return min(candidates, key=lambda fit: (fit.misfit or 0.0, fit.solution.squares), default=None)


def _fit_free(law: str, points: tuple[CountPoint, ...], noise: Noise, held: tuple[str, ...]) -> ScalingFit | None:
    """Return the fit of the parameters that are not `held` at zero."""
    free = tuple(name for name in LAWS[law].parameters if name not in held)
    counts, values = [point.count for point in points], [point.value for point in points]
    # The standard error of each value in its own unit, zero where none is known.
    spread = pooled_log_stdev(point.values for point in points) or 0.0
    errors = [point.value * spread / math.sqrt(len(point.values)) for point in points]

    def curve(parameters: Vector, count: float) -> tuple[float, Vector] | None:
        point = universal_scalability(dict(zip(free, parameters, strict=True)), count)
        return None if point is None else (point[0], tuple(point[1][name] for name in free))

    start = _start(free, counts, values)
    units = [value if noise == "relative" else 1.0 for value in values]
    solution = least_squares(curve, start, counts, values, [unit**-2 for unit in units])
    if solution is None:
        return None
    freedom = len(points) - len(LAWS[law].parameters)
    misfit: float | None = None
    if freedom >= 1:
        weighted = _weighted(curve, solution, counts, values, units, errors, freedom)
        if weighted is None:
            return None
        misfit, solution = weighted
    parameters = dict(zip(free, solution.parameters, strict=True)) | dict.fromkeys(held, 0.0)
    return ScalingFit(
        law=law,
        points=points,
        parameters={name: parameters[name] for name in LAWS[law].parameters},
        free=free,
        at_bound=held,
        misfit=misfit,
        spread=spread,
        spread_freedom=sum(len(point.values) - 1 for point in points) or max(freedom, 1),
        noise=noise,
        solution=solution,
    )


def _start(free: tuple[str, ...], counts: Sequence[float], values: Sequence[float]) -> Vector:
    """Return where the search begins: at the contention of the first count."""
    first = values[0] / counts[0]
    # The share lost at the largest count, in equal parts to contention and coherence.
    lost = max(0.01, first * counts[-1] / values[-1] - 1) / (len(free) - 1 or 1)
    guess = {"a": lost / counts[-1], "b": lost / counts[-1] ** 2, "g": first}
    return tuple(guess[name] for name in free)


def _weighted(
    curve: Curve,
    plain: LeastSquares,
    counts: Sequence[float],
    values: Sequence[float],
    units: Sequence[float],
    errors: Sequence[float],
    freedom: int,
) -> tuple[float, LeastSquares] | None:
    """Return the misfit m and the fit with weights 1 / (m^2 + e^2), after Paule and Mandel."""

    def fit(misfit2: float) -> LeastSquares | None:
        weights = [1 / (misfit2 * unit * unit + e * e) for unit, e in zip(units, errors, strict=True)]
        return least_squares(curve, plain.parameters, counts, values, weights)

    if not any(errors):
        misfit2 = plain.squares / freedom
        inverse = tuple(tuple(entry * misfit2 for entry in row) for row in plain.inverse)
        return math.sqrt(misfit2), replace(plain, inverse=inverse)
    misfit2 = 0.0
    for _ in range(_MOST_NEWTON):
        best = fit(misfit2)
        if best is None:
            return None
        # Newton's method from below. By how much the squares fall is known without a fit: at the minimum, parameters cancel.
        terms = [(r / (misfit2 * u * u + e * e), u) for r, u, e in zip(best.residuals, units, errors, strict=True)]
        falls = math.fsum((term * u) ** 2 for term, u in terms)
        step = (best.squares - freedom) / falls if falls else 0.0
        if step <= 1e-9 * misfit2:
            return math.sqrt(misfit2), best
        misfit2 += step
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A law that was considered: its fit, the root mean square of the errors with each count left out, or why it is not chosen.

    The error is a share of the values.
    """

    law: str
    fit: ScalingFit | None
    left_out_error: float | None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFit:
    """The fit of the law that best predicts left-out counts, with all fits that were considered.

    `possible` are the fits that the measurements do not rule out, the chosen fit first: fits whose squared error at counts
    left out is not larger than the chosen fit's by an F test at 5 %, two-sided.
    """

    fit: ScalingFit
    possible: tuple[ScalingFit, ...]
    candidates: tuple[Candidate, ...]


def choose_law(points: Sequence[CountPoint], laws: Sequence[str] = tuple(LAWS)) -> ChosenFit:
    """Return the law with the smallest error when each of two or more measured counts in turn is left out of the fit.

    A law that equals another at a bound, or has as many parameters as there are counts, is not chosen. Raises UsageError where
    none can be.
    """
    candidates = tuple(_candidate(law, tuple(points)) for law in laws)
    able = [(each.left_out_error, each.fit) for each in candidates if each.left_out_error is not None and each.fit]
    if not able:
        reasons = "; ".join(f"{each.law}: {each.why_not}" for each in candidates)
        raise UsageError(f"no law can be chosen from {len(points)} measured counts ({reasons})")
    able.sort(key=lambda pair: pair[0])
    least, fit = able[0]
    possible = tuple(other for error, other in able if _is_like(error, other.freedom, least, fit.freedom))
    return ChosenFit(fit=fit, possible=possible, candidates=candidates)


def _is_like(error: float, freedom: int, least: float, least_freedom: int) -> bool:
    """Return whether errors may have the same variance: P(F >= (error / smallest)^2) is above 2.5 %."""
    if error <= least:
        return True
    ratio = (least / error) ** 2
    return (
        incomplete_beta(least_freedom * ratio / (least_freedom * ratio + freedom), least_freedom / 2, freedom / 2)
        > 0.025
    )


def _candidate(law: str, points: tuple[CountPoint, ...]) -> Candidate:
    fit = fit_law(law, points)
    why_not = ""
    if fit is None:
        why_not = f"{len(points)} measured counts do not settle its {len(LAWS[law].parameters)} parameters"
    elif fit.why_no_interval:
        why_not = fit.why_no_interval
    error = _left_out_error(law, points) if not why_not else None
    if not why_not and error is None:
        why_not = "it has no fit when a count is left out"
    return Candidate(law=law, fit=fit, left_out_error=error, why_not=why_not)


def _left_out_error(law: str, points: tuple[CountPoint, ...]) -> float | None:
    squares: list[float] = []
    for index, point in enumerate(points):
        others = points[:index] + points[index + 1 :]
        # Of two counts one is left: enough for the one parameter of a proportion.
        fit = fit_law(law, others) if len(others) > 1 else None
        if fit is not None:
            projected = fit.at(point.count)
        elif len(others) == 1 and LAWS[law].parameters == ("g",):
            projected = others[0].value / others[0].count * point.count
        else:
            return None
        squares.append(((point.value - projected) / point.value) ** 2)
    return math.sqrt(math.fsum(squares) / len(squares))


class MixedWithProjected(UsageError, AttributeError, TypeError):
    """A projected value was given where a measured value is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """A value that nobody measured. It is no number: it has no `value`, and arithmetic with it is an error.

    `centre` is the curve of `law` at `count`, `confidence` the interval of the curve, `prediction` of a new repeat, both
    over all `possible` laws. They are None where `why_no_interval` says why. In JSON it has no `value` either, so that no reader
    of measured values takes it for one.
    """

    count: float
    law: str
    possible: Annotated[tuple[str, ...], JsonKey("possible_laws")]
    centre: Annotated[float, JsonKey("projected_value")]
    prediction: Annotated[Interval | None, JsonKey("prediction_interval")]
    confidence: Annotated[Interval | None, JsonKey("law_interval")]
    why_no_interval: str
    largest_measured: float

    if not TYPE_CHECKING:  # mypy refuses what these refuse at run time

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            self._refuse()

        def _refuse(self, *_: object) -> NoReturn:
            raise MixedWithProjected(
                f"a value projected to {self.count:g} by {self.law} is used as a measured value."
                " Projected and measured values are reported apart and never combined"
            )

        __float__ = __int__ = __index__ = __neg__ = __abs__ = __round__ = _refuse
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
        __pow__ = __rpow__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


def project(fit: ScalingFit | ChosenFit, count: float, *, declared_bound: float | None = None) -> Projected:
    """Return the projection of a fit to a count.

    The intervals of a chosen fit reach from the lowest to the highest that a possible law gives: which law holds beyond the
    measured counts is not known either. With two counts it has none. A repeat's interval is wider than the curve's. Raises
    UsageError beyond `FURTHEST` times the largest measured count unless a bound at or above `count` is declared, and beyond a
    declared bound.
    """
    fits = fit.possible if isinstance(fit, ChosenFit) else (fit,)
    best = fits[0]
    # Where a law was to be chosen, two counts leave `ideal` alone: at 8 times the larger one its intervals cover 4 to 10 %
    # where the law is another one.
    is_choice = not isinstance(fit, ChosenFit) or len(best.points) > 2 or len(fit.candidates) == 1
    furthest = declared_bound if declared_bound is not None else FURTHEST * best.largest
    if count > furthest:
        what = (
            f"the declared bound of {furthest:g}"
            if declared_bound is not None
            else f"{FURTHEST} times the largest measured count ({best.largest:g}). Measure at more, or declare a bound"
        )
        raise UsageError(f"project to {count:g}: beyond {what}")
    return Projected(
        count=count,
        law=best.law,
        possible=tuple(each.law for each in fits),
        centre=best.at(count),
        confidence=_hull([each.confidence(count) for each in fits]) if is_choice else None,
        prediction=_hull([each.prediction(count) for each in fits]) if is_choice else None,
        why_no_interval=best.why_no_interval if is_choice else "two measured counts settle no law but ideal",
        largest_measured=best.largest,
    )


def _hull(intervals: Sequence[Interval | None]) -> Interval | None:
    known = [interval for interval in intervals if interval is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A measured count that the fit did not see. `is_within` its prediction interval, None where there is none."""

    point: CountPoint
    projected: Projected
    is_within: bool | None


def back_test(points: Sequence[CountPoint], held_out: int, laws: Sequence[str] = tuple(LAWS)) -> tuple[HeldOut, ...]:
    """Return how a law chosen without the `held_out` largest counts, which leave two or more, does on them.

    Raises UsageError as `choose_law`, and where a count is beyond the bound of projections.
    """
    chosen = choose_law(points[:-held_out], laws)
    results = []
    for point in points[-held_out:]:
        projected = project(chosen, point.count)
        interval = projected.prediction
        is_within = None if interval is None else interval[0] <= point.value <= interval[1]
        results.append(HeldOut(point=point, projected=projected, is_within=is_within))
    return tuple(results)
