"""The energy that was drawn up to each moment, and where on a run's clock the readings of a meter belong.

A meter's clock is not the run's. The lag is the shift at which the meter's power best fits the run's own records: the power
of its devices, or which steps ran. Outside of steps the run is taken to be idle, so that a shift by a whole step does not fit.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Final, Literal

from milabench.analysis.intervals import Interval, normal_quantile
from milabench.analysis.sample_statistics import mean, median
from milabench.errors import UsageError
from milabench.events.stored_json import Number

Point = tuple[float, float]
Basis = Literal["device power", "steps", "given", "none"]

_BINS: Final = 256  # of the run, in the first pass over all lags
_FEWEST_BINS: Final = 32
_MOST_PRODUCTS: Final = 5_000_000  # in the first pass: seconds
_MOST_BINS: Final = 8192
_FINER: Final = 4
_LEAST_BINS: Final = 8
_MARGIN: Final = 0.2  # of the run, in which it idles before and after
_COVERED: Final = 0.7  # of the run with its margins, by the meter: about all of the run
_IDLE: Final = 0.25  # of the most that was read of a device, it draws no more when it idles
_LEAST_CORRELATION: Final = 0.5
_RIVAL: Final = 0.02  # correlations closer than this are told apart by nothing


class EnergyCurve:
    """The energy in J since the first reading, at rising unix seconds. Between readings the power is constant."""

    __slots__ = ("joules", "times")

    def __init__(self, points: Iterable[Point]) -> None:
        """Take points (unix seconds, J) in the order of time. For a moment that is there twice, the last counts."""
        of_time = dict(points)
        self.times = list(of_time)
        self.joules = list(of_time.values())

    @classmethod
    def of_power(cls, readings: Sequence[Point]) -> EnergyCurve:
        """Return the curve below readings of power (unix seconds, W), by trapezoids."""
        steps = ((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(readings))
        return cls(zip((time for time, _ in readings), itertools.accumulate(steps, initial=0.0), strict=False))

    def __bool__(self) -> bool:
        """Whether there are two readings at least."""
        return len(self.times) > 1

    def at(self, time: float) -> float:
        """Return the energy up to a moment. Outside of the readings as at the nearest."""
        if time <= self.times[0]:
            return self.joules[0]
        if time >= self.times[-1]:
            return self.joules[-1]
        after = bisect_right(self.times, time)
        start, stop = self.times[after - 1], self.times[after]
        share = (time - start) / (stop - start)
        return self.joules[after - 1] + share * (self.joules[after] - self.joules[after - 1])

    def covers(self, span: Interval) -> bool:
        """Return whether its readings reach over a span, but for the time between two of them."""
        return self.times[0] <= span[0] + self.interval_s and self.times[-1] >= span[1] - self.interval_s

    def within(self, span: Interval) -> float:
        """Return the energy within a span, in J."""
        return self.at(span[1]) - self.at(span[0])

    def readings_in(self, span: Interval) -> list[float]:
        """Return the times of the readings within a span."""
        return self.times[bisect_right(self.times, span[0]) : bisect_right(self.times, span[1])]

    @property
    def interval_s(self) -> float:
        """The median time between readings."""
        return median([b - a for a, b in itertools.pairwise(self.times)])

    def moved(self, seconds: float) -> EnergyCurve:
        """Return the curve on a clock that says so much more."""
        return EnergyCurve(zip((time + seconds for time in self.times), self.joules, strict=True))


def total_curve(curves: Sequence[EnergyCurve]) -> EnergyCurve:
    """Return the sum of curves, where all have readings. Raises UsageError where they do at no time."""
    if len(curves) == 1:
        return curves[0]
    start = max(curve.times[0] for curve in curves)
    stop = min(curve.times[-1] for curve in curves)
    if start >= stop:
        raise UsageError("the outlets were not read at the same time. Import each of them alone with --outlet")
    times = sorted({start, stop, *(time for curve in curves for time in curve.readings_in((start, stop)))})
    return EnergyCurve((time, math.fsum(curve.at(time) for curve in curves)) for time in times)


def run_curve(spans: Sequence[tuple[str, Interval, Sequence[Point]]]) -> tuple[EnergyCurve, Basis]:
    """Return the power that a run recorded, and its source: from (place, span, readings of power) of devices in steps.

    Where no device was read, it is the number of running steps. Outside of its steps a device draws at most its lowest reading.
    """
    has_power = bool(spans) and all(len(readings) > 1 for _, _, readings in spans)
    if not has_power:
        spans = [(f"{number}", span, ()) for number, (_, span, _) in enumerate(spans)]
    places = dict.fromkeys(place for place, _, _ in spans)
    start, stop = min(span[0] for _, span, _ in spans), max(span[1] for _, span, _ in spans)
    margin = _MARGIN * (stop - start)
    curves = []
    for place in places:
        own = sorted(((span, readings) for of, span, readings in spans if of == place), key=lambda each: each[0])
        read = [power for _, readings in own for _, power in readings]
        idle = min(*read, _IDLE * max(read)) if read else 0.0
        points = [(start - margin, idle)]
        for span, readings in own:
            # Just outside of the step it idles: an edge as steep as the clock allows.
            inside = list(readings) if has_power else [(span[0], 1.0), (span[1], 1.0)]
            edges = [(inside[0][0] - 1e-3, idle), *inside, (inside[-1][0] + 1e-3, idle)]
            points += [point for point in edges if point[0] > points[-1][0]]
        points.append((stop + margin, idle))
        curves.append(EnergyCurve.of_power(points))
    return total_curve(curves), "device power" if has_power else "steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFit:
    """By how many seconds a meter's clock is behind the run's, `offset_s` to be added to its times.

    `error_s` is the standard error of that, `correlation` how well the meter follows the run then, and `rival` the correlation at
    the best other lag. None of an offset that was given.
    """

    offset_s: Number = 0.0
    basis: Basis = "none"
    correlation: Number | None = None
    error_s: Number | None = None
    rival: Number | None = None

    @property
    def ci95(self) -> Interval | None:
        """The 95 % interval of the offset."""
        if self.error_s is None:
            return None
        half = normal_quantile(0.975) * self.error_s
        return self.offset_s - half, self.offset_s + half


def fit_clock(meter: EnergyCurve, run: EnergyCurve, basis: Basis) -> ClockFit:
    """Return the offset at which a meter follows a run best, by correlation over all lags, finer and finer.

    Raises UsageError where it follows at none, or as well at two.
    """
    span = run.times[0], run.times[-1]
    # Of readings that are hundreds of times as long as the run, the first pass is coarser.
    longer = max(1.0, (meter.times[-1] - meter.times[0]) / (span[1] - span[0]))
    bins = min(_BINS, math.isqrt(math.floor(_MOST_PRODUCTS / longer)))
    if bins < _FEWEST_BINS:
        raise UsageError(
            f"the meter was read for {longer:.0f} times as long as the run with its margins takes: import the day of the run, "
            "or give --clock-offset SECONDS"
        )
    width = (span[1] - span[0]) / bins
    first = math.floor((span[0] + _COVERED * (span[1] - span[0]) - meter.times[-1]) / width)
    last = math.ceil((span[1] - _COVERED * (span[1] - span[0]) - meter.times[0]) / width)
    # A lag is -offset: the run is read where the meter's clock says so.
    tried = _correlations(meter, run, width, range(first, last + 1), 0.0) if first <= last else {}
    if not tried:
        raise UsageError(
            f"the meter was read for {meter.times[-1] - meter.times[0]:.0f} s, the run with its margins takes "
            f"{span[1] - span[0]:.0f} s: import the readings of the whole time"
        )
    best = max(tried, key=lambda lag: tried[lag])
    rivals = [value for lag, value in tried.items() if abs(lag - best) > 4 * width and value < 1]
    if tried[best] < _LEAST_CORRELATION:
        raise UsageError(
            f"the meter does not follow the {basis} of the run: the best correlation is {tried[best]:.2f}. Check that it is "
            "the meter of this run's node, or give --clock-offset SECONDS"
        )
    finest = max(meter.interval_s / 2, (span[1] - span[0]) / _MOST_BINS)
    while width > finest:
        width = max(width / _FINER, finest)
        near = _correlations(meter, run, width, range(-2 * _FINER, 2 * _FINER + 1), best)
        best = max(near, key=lambda lag: near[lag])
    tried = _correlations(meter, run, width, range(-1, 2), best)
    offset = best + _peak(tried.get(best - width), tried[best], tried.get(best + width)) * width
    fit = ClockFit(offset_s=offset, basis=basis, correlation=tried[best], rival=max(rivals, default=None))
    if fit.rival is not None and fit.correlation is not None and fit.rival > fit.correlation - _RIVAL:
        raise UsageError(
            f"the meter follows the run as well at two offsets (correlations {fit.correlation:.3f} and {fit.rival:.3f}). "
            "Give --clock-offset SECONDS"
        )
    return replace(fit, error_s=_error(meter, run, fit, width))


def _bins(curve: EnergyCurve, start: float, width: float, count: int) -> list[float]:
    edges = [curve.at(start + index * width) for index in range(count + 1)]
    return [(b - a) / width for a, b in itertools.pairwise(edges)]


def _correlations(meter: EnergyCurve, run: EnergyCurve, width: float, lags: range, around: float) -> dict[float, float]:
    """Return the correlation at each offset `around + lag * width` at which the meter covers enough of the run."""
    count = max(_LEAST_BINS, math.floor((run.times[-1] - run.times[0]) / width))
    of_run = _bins(run, run.times[0], width, count)
    # The meter's bins for all lags at once: with offset o, the run's moment t is t - o on the meter's clock.
    begin = run.times[0] - around - lags[-1] * width
    of_meter = _bins(meter, begin, width, count + len(lags))
    starts = range(len(of_meter))
    read = range(
        bisect_left(starts, meter.times[0], key=lambda index: begin + index * width),
        bisect_right(starts, meter.times[-1] - width, key=lambda index: begin + index * width),
    )
    found: dict[float, float] = {}
    for lag in lags:
        shift = lags[-1] - lag
        start, stop = max(0, read.start - shift), min(count, read.stop - shift)
        if stop - start < _COVERED * count:
            continue
        value = _correlation(of_run[start:stop], of_meter[start + shift : stop + shift])
        if value is not None:
            found[around + lag * width] = value
    return found


def _correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    centre_x, centre_y = mean(xs), mean(ys)
    xs, ys = [x - centre_x for x in xs], [y - centre_y for y in ys]
    square_x, square_y = math.fsum(map(mul, xs, xs)), math.fsum(map(mul, ys, ys))
    if not square_x or not square_y:
        return None
    return math.fsum(map(mul, xs, ys)) / math.sqrt(square_x * square_y)


def _peak(before: float | None, top: float, after: float | None) -> float:
    """Return where between -1 and 1 the parabola through three correlations has its top."""
    if before is None or after is None or before + after >= 2 * top:
        return 0.0
    return max(-1.0, min(1.0, (before - after) / (2 * (before - 2 * top + after))))


def _error(meter: EnergyCurve, run: EnergyCurve, fit: ClockFit, width: float) -> float:
    """Return the standard error of the offset: least squares of the meter on the run and its slope, and half a reading.

    Successive residuals are correlated, so they count as fewer, by their lag-one correlation. Steps begin
    before the work in them does, which no slope shows.
    """
    count = max(_LEAST_BINS, math.floor((run.times[-1] - run.times[0]) / width))
    xs = _bins(run, run.times[0], width, count)
    ys = _bins(meter, run.times[0] - fit.offset_s, width, count)
    centre_x, centre_y = mean(xs), mean(ys)
    square_x = math.fsum((x - centre_x) ** 2 for x in xs)
    slope = math.fsum((x - centre_x) * (y - centre_y) for x, y in zip(xs, ys, strict=True)) / square_x
    residuals = [y - centre_y - slope * (x - centre_x) for x, y in zip(xs, ys, strict=True)]
    variance = math.fsum(r * r for r in residuals) / max(1, count - 3)
    again = math.fsum(a * b for a, b in itertools.pairwise(residuals)) / (math.fsum(r * r for r in residuals) or 1.0)
    inflation = (1 + again) / (1 - again) if 0 < again < 1 else 1.0
    change = math.fsum(((b - a) / (2 * width)) ** 2 for a, b in zip(xs, xs[2:], strict=False)) * slope**2
    fitted = variance * inflation / change if change else 0.0
    # Where within its interval a meter reads is not known: uniform over it.
    return math.sqrt(
        fitted + meter.interval_s**2 / 12 + (_late_s(xs, width, fit) ** 2 / 3 if fit.basis == "steps" else 0)
    )


def _late_s(xs: Sequence[float], width: float, fit: ClockFit) -> float:
    """Return by how much of each step its power may come later than the step, as the correlation leaves room for.

    Of a signal that is on for the share p of the time, the share m that is not as the other signal lowers r^2 by m / (p (1 - p)).
    """
    low, high, centre = min(xs), max(xs), mean(xs)
    variance = mean([(x - centre) ** 2 for x in xs]) / (high - low) ** 2
    rises = sum(a < (low + high) / 2 <= b for a, b in itertools.pairwise(xs))
    return (1 - (fit.correlation or 0.0) ** 2) * variance * width * len(xs) / max(1, rises)
