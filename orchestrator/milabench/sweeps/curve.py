"""The sweeps of several repeats -> a curve: its points with their intervals, its area, the best point within the SLO."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from milabench.analysis.intervals import LEAST_LAUNCHES, Interval, log_t_interval, most_bounds, t_quantile
from milabench.analysis.job_mix import Costs, JobTask, job_mix
from milabench.analysis.sample_statistics import geometric_mean, mean, stdev
from milabench.analysis.serving_model import (
    POINT_METRICS,
    CurvePoint,
    LaunchCurve,
    LaunchPoint,
    PointValue,
    ServingCurve,
)
from milabench.events.values import SMALLEST_NUMBER, finite_number
from milabench.records.latencies import LATENCY_QUANTILES
from milabench.shown import grouped
from milabench.sweeps.fold import in_order, meets, point_quantile
from milabench.sweeps.request_quantiles import is_known_quantile

LEAST_POINTS = 7
"""Of a sweep, as in MLPerf Endpoints: fewer points do not show where a curve bends."""
_TOKENS = 1e6

Launch = Sequence[LaunchCurve]
"""The curves of a repeat: a curve for each of its instances, which are no sample of repeats."""


def serving_curve(launches: Sequence[Launch]) -> ServingCurve | None:
    """Return the curve over repeats. None without a curve."""
    curves = [curve for launch in launches for curve in launch]
    if not curves:
        return None
    names = dict.fromkeys(point.name for curve in curves for point in curve.points)
    points = tuple(_curve_point(name, launches, curves[0].slo) for name in names)
    of_server = [point for point in points if not point.is_of_client]
    kept = [
        point
        for point in of_server
        if (point.meets_slo or not curves[0].slo) and all(_has(curve, {point.name}) for curve in curves)
    ]
    with_rate = [point for point in kept if "output_tps" in point.values]
    best = max(with_rate, key=lambda point: point.values["output_tps"].value, default=None)
    within = [point for point in kept if point.meets_slo]
    return ServingCurve(
        client=curves[0].client,
        version=curves[0].version,
        seed=curves[0].seed,
        slo=curves[0].slo,
        points=points,
        area=_area(launches, {point.name for point in points if point.is_in_area}),
        best=best.name if best is not None else "",
        slo_concurrency=_largest(point.concurrency for point in within),
        slo_rate=_largest(point.rate for point in within),
    )


def _largest(loads: Iterable[float | None]) -> float | None:
    return max((load for load in loads if load is not None), default=None)


def _has(curve: LaunchCurve, names: set[str]) -> bool:
    """Return whether a repeat measured all these points."""
    return names <= {point.name for point in curve.points if point.state == "measured"}


def _curve_point(name: str, launches: Sequence[Launch], slo: Mapping[str, float]) -> CurvePoint:
    by_launch = [[point for curve in launch for point in curve.points if point.name == name] for launch in launches]
    every = [point for launch in by_launch for point in launch]
    instances = _measured(by_launch)
    measured = [_together(own) for own in instances]
    values = _values(instances, measured)
    is_of_client = any(point.is_of_client for point in every)
    states = {point.state for point in every}
    return CurvePoint(
        name=name,
        concurrency=_largest(point.concurrency for point in every),
        rate=_largest(point.rate for point in every),
        arrivals=max(point.arrivals for point in every),
        state=next(state for state in ("measured", "failed", "skipped") if state in states),
        why=_counted([point.why for point in every if point.why], len(every)),
        notes=tuple(_notes(every)),
        requests=sum(point.requests for point in every),
        errors=sum(point.errors for point in every),
        values=values,
        few=tuple(name for name in LATENCY_QUANTILES if name not in values and _has_few(name, measured)),
        meets_slo=None if is_of_client or not measured else meets(measured, slo),
    )


def _has_few(metric: str, launches: Sequence[LaunchPoint]) -> bool:
    """Return whether repeats have requests with this time, but too few for its quantile."""
    quantile = LATENCY_QUANTILES[metric]
    return is_known_quantile([launch.samples.get(quantile.latency, ()) for launch in launches], quantile.share)


def _values(instances: Sequence[Sequence[LaunchPoint]], together: Sequence[LaunchPoint]) -> dict[str, PointValue]:
    """Return the numbers of a point by the instances of each repeat that measured it, and by each repeat as a whole."""
    numbers = {
        name: point_quantile(name, together)
        if name in LATENCY_QUANTILES
        else point_value([[point.values[name] for point in launch if name in point.values] for launch in instances])
        for name in POINT_METRICS
    }
    tpot = numbers["tpot_p90_ms"]
    numbers["user_tps"] = None if tpot is None or tpot.value < SMALLEST_NUMBER else _of_a_user(tpot)
    return {name: number for name, number in numbers.items() if number is not None}


def _measured(launches: Sequence[Sequence[LaunchPoint]]) -> list[list[LaunchPoint]]:
    """Return the points of the instances that measured, of each repeat that has any."""
    counted = ([point for point in launch if point.state == "measured"] for launch in launches)
    return list(filter(None, counted))


def _together(instances: Sequence[LaunchPoint]) -> LaunchPoint:
    """Return the point of a repeat, with the requests of all its instances."""
    if len(instances) == 1:
        return instances[0]
    samples = grouped((name, times) for point in instances for name, times in point.samples.items())
    return replace(instances[0], samples={name: sorted(chain.from_iterable(own)) for name, own in samples.items()})


def _of_a_user(tpot: PointValue) -> PointValue:
    """Return tokens/s from ms per token."""
    low, high = tpot.ci95 or (0.0, 0.0)
    return PointValue(
        value=1e3 / tpot.value,
        ci95=(1e3 / high, 1e3 / low) if low >= SMALLEST_NUMBER else None,
        launches=tuple(1e3 / own for own in tpot.launches) if min(tpot.launches, default=0.0) > 0 else (),
        lower={level: 1e3 / bound for level, bound in tpot.upper.items()},
        upper={level: 1e3 / bound for level, bound in tpot.lower.items() if bound >= SMALLEST_NUMBER},
    )


def _notes(points: Sequence[LaunchPoint]) -> Iterable[str]:
    """Yield the first note of each kind (its beginning), and the number of repeats with that kind."""
    firsts = ({note.partition(":")[0]: note for note in reversed(point.notes)} for point in points)
    kinds = grouped(item for own in firsts for item in reversed(own.items()))
    return (_counted(texts, len(points)) for texts in kinds.values())


def _counted(texts: Sequence[str], launches: int) -> str:
    """Return the first of some texts, and the number of repeats that it holds for, if not all."""
    if not texts:
        return ""
    return texts[0] if len(texts) == launches else f"{texts[0]} ({len(texts)} of {launches} repeats)"


def point_value(launches: Sequence[Sequence[float]]) -> PointValue | None:
    """Return a number over repeats, each of which has a number, or one for each instance. None where none has any."""
    values = [_mean(instances) for instances in launches if instances]
    if not values or any(finite_number(value) is None for value in values):
        return None
    return PointValue(value=_mean(values), ci95=_interval(values), launches=tuple(values))


def _mean(values: Sequence[float]) -> float:
    return geometric_mean(values) if min(values) >= SMALLEST_NUMBER else mean(values)


def _interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of `_mean`: on logarithms, but plain where a number is zero. No number here is below zero."""
    if min(values) >= SMALLEST_NUMBER:
        interval = log_t_interval(values)
        # Of numbers that are no measurement, an end may be beyond all measure.
        return interval if interval is None or finite_number(interval[1]) is not None else None
    if len(values) < LEAST_LAUNCHES:
        return None
    half = t_quantile(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return max(0.0, mean(values) - half), mean(values) + half


def _area(launches: Sequence[Launch], names: set[str]) -> PointValue | None:
    """Return the area over the repeats that measured all these points: without any of them it is smaller."""
    whole = [launch for launch in launches if names and all(_has(curve, names) for curve in launch)]
    # Of requests of one token nobody knows the tokens of a user: there is no area.
    return point_value([[area for curve in launch if (area := _area_of(curve, names))] for launch in whole])


def _area_of(curve: LaunchCurve, names: set[str]) -> float:
    measured = (point.values for point in curve.points if point.name in names)
    return dominated_area(
        (values["user_tps"], values["output_tps"])
        for values in measured
        if "user_tps" in values and "output_tps" in values
    )


def dominated_area(points: Iterable[tuple[float, float]]) -> float:
    """Return the area of all (x, y) from zero on that some point reaches in both: no line is drawn between points."""
    area = height = 0.0
    # From the right: each point adds what it has above those that reach further.
    for x, y in sorted(points, reverse=True):
        if y > height:
            area += x * (y - height)
            height = y
    return area


def with_costs(curve: LaunchCurve, joules_of: Callable[[float, float], float | None], costs: Costs) -> LaunchCurve:
    """Return a curve with the energy and the cost of a million output tokens at each point, as far as they are known.

    `joules_of` returns the energy of all devices between two moments (unix s). The cost follows docs/explanation/methodology.md,
    1.4: the share of the system's price in the time, and the energy.
    """
    return replace(curve, points=tuple(_with_costs(point, joules_of, costs) for point in curve.points))


def _with_costs(point: LaunchPoint, joules_of: Callable[[float, float], float | None], costs: Costs) -> LaunchPoint:
    rate, start, stop = point.values.get("output_tps", 0.0), point.start, point.stop
    if point.state != "measured" or rate < SMALLEST_NUMBER or start is None or stop is None or not start < stop:
        return point
    joules = joules_of(start, stop)
    per_token = None if joules is None or joules <= 0 else joules / (rate * (stop - start))
    mix = job_mix("", [JobTask(work=_TOKENS, rate=rate, level=None, joules_per_item=per_token)], costs)
    added = {
        **({} if per_token is None else {"joules_per_mtok": per_token * _TOKENS}),
        **({} if mix is None or mix.cost is None else {"cost_per_mtok": mix.cost}),
    }
    return replace(point, values=in_order({**point.values, **added}))


def why_no_best(curve: ServingCurve) -> str:
    """Return why none of a curve's points is the best."""
    measured = [point for point in curve.points if point.state == "measured"]
    if not measured:
        return "no point was measured"
    if all(point.is_of_client for point in measured):
        return "at no point did the client keep the load"
    if curve.has_few_requests:
        return f"no point is shown to meet the SLO: {few_requests(curve)}"
    if curve.slo:
        return "no point meets the SLO ({})".format(", ".join(f"{name} {limit:g}" for name, limit in curve.slo.items()))
    return "no point was measured in every repeat"


def few_requests(curve: ServingCurve, at: CurvePoint | None = None, metric: str = "") -> str:
    """Return how many requests quantiles need where any point has too few. Empty where none has too few."""
    points = curve.points if at is None else (at,)
    names = [name for name in LATENCY_QUANTILES if any(name in point.few for point in points) and metric in ("", name)]
    if not names:
        return "more requests would decide it" if curve.has_few_requests else ""
    name = next((name for name in names if name in curve.slo), names[-1])
    q = LATENCY_QUANTILES[name].share
    fewest = min(point.requests - point.errors for point in points if name in point.few)
    needed = f"p{100 * q:g} needs {most_bounds(q)} requests at a point, in each repeat if repeats differ"
    return f"few-requests: {needed}, but there are {fewest}"


def curve_messages(curve: ServingCurve) -> Iterable[str]:
    """Yield the remarks on a curve that belong to the benchmark's number."""
    if any(point.state == "measured" for point in curve.points) and not curve.best:
        yield why_no_best(curve)
    for point in curve.points:
        if point.is_of_client:
            yield f"{point.name}: its client did not keep the load: it has no verdict on the SLO and is not the best point"
        if point.state != "measured" or point.why:
            yield f"{point.name} {'failed' if point.state == 'measured' else point.state}: {point.why}"
    if len(curve.points) < LEAST_POINTS:
        count = len(curve.points)
        yield f"a curve of {count} point{'' if count == 1 else 's'}: at least {LEAST_POINTS} show where it bends"
