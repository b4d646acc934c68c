"""The numbers of a curve that criteria ask for, and the missing ones."""

from __future__ import annotations

from milabench.acceptance.bounds import CurveNumber
from milabench.acceptance.criteria import ServingCriterion
from milabench.analysis.serving_model import AREA, AREA_UNITS, POINT_METRICS, PointValue, ServingCurve
from milabench.sweeps.curve import few_requests, why_no_best


def curve_number(curve: ServingCurve, asked: ServingCriterion) -> CurveNumber:
    """Return a number of a curve's point, or of the whole curve, or why it is missing."""
    if asked.point:
        return _point_number(curve, asked)
    if asked.metric == AREA:
        return _number(curve.area, AREA, AREA_UNITS)
    if not curve.slo:
        return CurveNumber(measured="no SLO", missing="an `slo` of this benchmark in the suite")
    load = asked.metric.removeprefix("slo_")
    # Without such a point, no point of the sweep could have met the limits, and none could have missed them.
    if all(getattr(point, load) is None for point in curve.points):
        return CurveNumber(measured=f"no {load}", missing=f"a point with a {load}. The sweep has {_names(curve)}")
    limit = curve.slo_concurrency if load == "concurrency" else curve.slo_rate
    if not limit and curve.has_few_requests:
        return CurveNumber(measured="no point is shown to meet the SLO", missing=why_no_best(curve))
    return CurveNumber(value=limit or 0.0, measured="" if limit else "no point meets the SLO")


def _point_number(curve: ServingCurve, asked: ServingCriterion) -> CurveNumber:
    point = next((point for point in curve.points if point.name == asked.point), None)
    if point is None:
        return CurveNumber(measured="no such point", missing=f"this point. The sweep has {_names(curve)}")
    if point.state != "measured":
        state = f"{point.state}: {point.why}" if point.why else point.state
        return CurveNumber(measured=state, missing="a measurement of this point")
    if asked.metric in point.few:
        return CurveNumber(measured="-", missing=few_requests(curve, point, asked.metric))
    return _number(point.values.get(asked.metric), asked.metric, POINT_METRICS[asked.metric].units)


def _names(curve: ServingCurve) -> str:
    return ", ".join(point.name for point in curve.points) or "no point"


def _number(number: PointValue | None, metric: str, units: str) -> CurveNumber:
    if number is None:
        return CurveNumber(measured="no number", missing=f"a measurement of its {metric}")
    values = number.launches or (number.value,)
    if units and min(values) <= 0:
        return CurveNumber(measured=f"{number.value:.6g} {units}", missing=f"a {metric} above zero in every repeat")
    quantile = number if number.lower or number.upper else None
    return CurveNumber(value=number.value, values=values, units=units, quantile=quantile)
