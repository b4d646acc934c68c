"""A run -> its steps over time, in few numbers: for drawing, never for computing.

Every curve is cut into buckets, each with its minimum and maximum, so that a spike survives however far a curve is thinned.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

from milabench.analysis.measure import Measurement, measure
from milabench.analysis.order_statistics import quantiles
from milabench.analysis.series import CompactSeries, Series
from milabench.analysis.step_results import CourseOf, planned_steps
from milabench.analysis.windows import Window, part_of
from milabench.events.attempts import attempts, last_word
from milabench.events.model import Line
from milabench.events.readings import THROTTLED, DeviceReadings
from milabench.events.rundir import Run

BUCKETS = 200
QUANTILES = (0.0, 0.01, 0.025, *(twentieth / 20 for twentieth in range(1, 20)), 0.975, 0.99, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A quantity over time, bucket by bucket: when each bucket ends, its minimum and maximum.

    `time` is in seconds since the trace's `begin`, or counts entries where `is_timed` is false. `count` is how many
    readings it was made of.
    """

    time: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    count: int
    is_timed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """The observations of a rank: `rate` items a second, the first `warmup` of the curve's time being warm-up.

    `quantiles` are the rates inside the window at `QUANTILES`. Empty where none lies in it.
    """

    rank: int
    units: str
    rate: Curve
    warmup: float | None = None
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """A stretch in which a device said it was held back, in seconds since the trace's begin, and its reasons."""

    start: float
    stop: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTrace:
    """A device over time: power in W, clock in MHz, temperature in degrees Celsius, load 0 to 1, memory in MiB.

    Unread quantities are not in `curves`. `throttle_samples` is how many samples reported their throttle reasons, `held_back` in
    how many of them any was more than normal, `capped` in how many the power limit was met.
    """

    key: str
    curves: Mapping[str, Curve]
    samples: int = 0
    throttle_samples: int = 0
    held_back: int = 0
    capped: int = 0
    throttled: tuple[Throttled, ...] = ()
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A step over time, in seconds since `begin` (unix time of its first reading; nan where none has a time).

    `window` is the time that the step declared as measured. `host` are the load of the processors, 0 to 1, and the memory of the
    step's processes in MiB.
    """

    step: str
    bench: str = ""
    begin: float = math.nan
    ranks: tuple[RankTrace, ...] = ()
    devices: tuple[DeviceTrace, ...] = ()
    host: Mapping[str, Curve]
    window: tuple[float, float] | None = None


RunTraces = Sequence[Sequence[Trace] | None] | None
"""The traces of the steps of each of some runs: None for a run without records, or where no format draws them."""


class Tracing:
    """The steps of runs over time: from readers of the records, or read here if nobody did."""

    def __init__(self) -> None:
        self._drawn: dict[Path, dict[str, Trace]] = {}

    def course(self, run: Run) -> CourseOf:
        """Return what draws each step of a run when its records have been read."""
        drawn = self._drawn[run.path] = {}
        return lambda measured: drawn.update({measured.step: trace(measured)})

    def of(self, run: Run) -> tuple[Trace, ...]:
        """Return each step's course in a run, of the counting attempt. Raises RecordError when its records cannot be read."""
        by_step, attempts_of = self._drawn.get(run.path, {}), attempts(run.journal)
        traced = []
        for step in planned_steps(run):
            drawn = by_step.get(step.id)
            if drawn is None:
                counts = last_word(attempts_of.get(step.id, ()))
                events = run.batches(step.id, counts.number if counts is not None else 1)
                drawn = trace(measure(step.id, (event for event in events if not isinstance(event, Line))))
            traced.append(replace(drawn, bench=step.bench))
        return tuple(traced)


def trace(measured: Measurement) -> Trace:
    """Return the course of a step by its measurements, with the single observations and readings."""
    ranks = sorted((series for series in measured.series if series.task == measured.task), key=lambda one: one.rank)
    window, devices, recorded = measured.readings.window, measured.readings.devices, measured.readings.host
    host = {name: recorded[key] for name, key in {"load": "load", "memory": "rss_MiB"}.items() if key in recorded}
    begin = min(
        [
            *(series.end(0) for series in ranks if series.lasted and not math.isnan(series.end(0))),
            *(device.time[0] for device in devices.values() if device.time),
            *(times[0] for times, _ in host.values()),
            *((window[0],) if window is not None else ()),
        ],
        default=math.nan,
    )
    return Trace(
        step=measured.step,
        begin=begin,
        ranks=tuple(_rank(series, begin, measured.window) for series in ranks),
        devices=tuple(_device(device, begin) for device in devices.values()),
        host={name: curve(times, values, begin) for name, (times, values) in host.items()},
        window=None if window is None else (window[0] - begin, window[1] - begin),
    )


def curve(time: Sequence[float], values: Sequence[float], begin: float, most: int = BUCKETS) -> Curve:
    """Return readings in buckets of equal size. nan is not a reading."""
    # Buckets of equal count, not of equal time: a gap in the samples makes no empty bucket.
    kept = [index for index, value in enumerate(values) if not math.isnan(value)]
    buckets = [[kept[index] for index in bucket] for bucket in _buckets(len(kept), most)]
    return Curve(
        time=tuple(time[bucket[-1]] - begin for bucket in buckets),
        low=tuple(min(values[index] for index in bucket) for bucket in buckets),
        high=tuple(max(values[index] for index in bucket) for bucket in buckets),
        count=len(kept),
    )


def _buckets(length: int, buckets: int) -> Iterable[range]:
    """Split entries into a limited number of ranges, whose lengths differ by at most one."""
    count = min(length, buckets)
    for bucket in range(count):
        yield range(length * bucket // count, length * (bucket + 1) // count)


def _rank(series: Series, begin: float, window: Window | None) -> RankTrace:
    length = len(series.warmup)
    buckets = list(_buckets(length, BUCKETS))
    times = [series.end(bucket[-1]) - begin for bucket in buckets]
    is_timed = not any(map(math.isnan, times))
    bounds = [_least_and_most(series, bucket) for bucket in buckets]
    warm = _warmup(series)
    return RankTrace(
        rank=series.rank,
        units=series.units,
        rate=Curve(
            time=tuple(times) if is_timed else tuple(float(bucket[-1] + 1) for bucket in buckets),
            low=tuple(least for least, _ in bounds),
            high=tuple(most for _, most in bounds),
            count=length,
            is_timed=is_timed,
        ),
        warmup=None if warm is None else (series.end(warm) - begin if is_timed else float(warm + 1)),
        quantiles=_rate_quantiles(series, window),
    )


def _least_and_most(series: Series, indices: range) -> tuple[float, float]:
    """Return the minimum and maximum rate of some entries. Plain observations are not visited singly."""
    if isinstance(series, CompactSeries) and series.n.constant is not None:
        lasted, scaled = series.lasted[indices.start : indices.stop], series.n.constant * 1e9
        # The slowest entry is the least rate; durations of plain observations are never zero.
        return scaled / max(lasted), scaled / min(lasted)
    rates = [series.rate(index) for index in indices]
    return min(rates), max(rates)


def _warmup(series: Series) -> int | None:
    """Return the index of the last entry of the warm-up at the beginning. None where there is none."""
    first = next((index for index, is_warmup in enumerate(series.warmup) if not is_warmup), len(series.warmup))
    return first - 1 if first else None


def _rate_quantiles(series: Series, window: Window | None) -> tuple[float, ...]:
    if not series.has_totals:
        rates = [series.rate(index) for index, is_warmup in enumerate(series.warmup) if not is_warmup]
        return tuple(quantiles(rates, QUANTILES)) if rates else ()
    part = part_of(series, window)
    if not len(part):
        return ()
    if part.items_each:
        # Nanoseconds as they were recorded: the slow ones are the low rates.
        lasted = part.durations() or ()
        return tuple(part.items_each * 1e9 / max(1.0, ns) for ns in quantiles(lasted, [1 - q for q in QUANTILES]))
    return tuple(quantiles(array("d", chain.from_iterable(part.rates())), QUANTILES))


def _device(device: DeviceReadings, begin: float) -> DeviceTrace:
    columns = {
        "power": device.power,
        "clock": device.clock,
        "temperature": device.temperature,
        "load": device.load,
        "memory": device.used,
    }
    throttle = [reasons for reasons in device.throttle if reasons is not None]
    return DeviceTrace(
        key=device.key,
        curves={name: drawn for name, values in columns.items() if (drawn := curve(device.time, values, begin)).count},
        samples=len(device.time),
        throttle_samples=len(throttle),
        held_back=sum(bool(THROTTLED & set(reasons)) for reasons in throttle),
        capped=sum("sw_power_cap" in reasons for reasons in throttle),
        throttled=tuple(_throttled(device, begin)),
        lost=device.lost,
    )


def _throttled(device: DeviceReadings, begin: float) -> Iterable[Throttled]:
    """Yield the stretches of samples in a row in which a device was held back for the same reasons."""
    known = (THROTTLED & set(reasons or ()) for reasons in device.throttle)
    sampled = zip(device.time, known, strict=True)
    stretches = [(reasons, next(samples)[0]) for reasons, samples in groupby(sampled, key=itemgetter(1))]
    stops = [*(start for _, start in stretches[1:]), *device.time[-1:]]
    for (reasons, start), stop in zip(stretches, stops, strict=True):
        if reasons:
            yield Throttled(start=start - begin, stop=stop - begin, reasons=tuple(sorted(reasons)))
