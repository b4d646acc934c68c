"""Sweeps over servers as drawings: throughput against the tokens/s of a user, and the time to the first token against load."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.analysis.serving_model import POINT_METRICS, CurvePoint, PointValue, ServingCurve
from milabench.pages.axis import Scale, coordinate
from milabench.pages.markup import Child, Markup, el
from milabench.pages.plots import WIDTH, figure, label, marker, marks, plot_legend, svg
from milabench.pages.xy_axes import BOTTOM, LEFT, RIGHT, TOP, axes, axis_end, interval_path, scale_of
from milabench.report.labels import format_number

NamedCurve = tuple[str, ServingCurve]

_LABEL_HEIGHT, _LABEL_WIDTH = 15, 48  # below which the labels of two points would overlap
_LETTER = 6.5  # wide, about
_MOST_REACH = 2  # times the largest value: an axis ends there, however wide an interval is
_LOADS = {"concurrency": "requests in flight", "rate": "requests/s that arrive"}


def serving_figures(curves: Sequence[NamedCurve]) -> list[Markup]:
    """Return the drawings of some curves of a benchmark, each under its name, over each other. Nothing without points."""
    drawn = [curve_figure(curves), *(ttft_figure(curves, load) for load in _LOADS)]
    return [one for one in drawn if one is not None]


def curve_figure(curves: Sequence[NamedCurve]) -> Markup | None:
    """Draw output tokens/s over tokens/s of a user: points with their load and intervals, and their area as steps.

    None where no point has both numbers.
    """
    placed = [(name, curve, _pairs(curve, "user_tps", "output_tps")) for name, curve in curves]
    pairs = [pair for _, _, own in placed for pair in own]
    if not pairs:
        return None
    x = Scale(low=0, high=_end([user for _, user, _ in pairs]), start=LEFT, stop=RIGHT)
    y = Scale(low=0, high=_end([output for _, _, output in pairs]), start=BOTTOM, stop=TOP)
    sign = marks([name for name, _ in curves])
    drawn: list[Child] = [axes(x, y, "tokens/s of a user", "output tokens/s")]
    for index, (name, curve, own) in enumerate(placed):
        drawn.append(el("path", d=_steps(own, x, y), class_=f"line thin {sign[name]}"))
        drawn += [_load_labels(curve, close, x, y, is_above=index % 2 == 0) for close in _close_ones(own, x, y)]
    # Over all labels, whose halo would hide what lies below.
    drawn += [_point(pair, x, y, sign[name]) for name, _, own in placed for pair in own]
    describe = "; ".join(
        f"{name}, {point.name}: {format_number(output.value)} output tokens/s at {format_number(user.value)} of a user"
        for name, _, own in placed
        for point, user, output in own
    )
    note = (
        "Up and right is better. Steps: the area below a curve's points, not interpolated. Bars: 95 % intervals over"
        " repeats, from 3 on. An open bar goes on. A label is a load: c is requests in flight, /s requests that arrive."
        " ★ marks the best point, ✕ a point that misses the SLO."
    )
    drawing = svg("output tokens/s against tokens/s of a user", describe[:4000], WIDTH, BOTTOM + 44, *drawn)
    return figure("Throughput against the tokens/s of a user", [_legend(sign), drawing], note)


def ttft_figure(curves: Sequence[NamedCurve], load: str) -> Markup | None:
    """Draw TTFT p90 over `load`, concurrency or rate, with intervals and the limit of the SLO. None without points."""
    placed = [(name, curve, _loads(curve, load)) for name, curve in curves]
    pairs = [pair for _, _, own in placed for pair in own]
    if not pairs:
        return None
    limits = {curve.slo["ttft_p90_ms"] for _, curve, _ in placed if "ttft_p90_ms" in curve.slo}
    loads = sorted({at.value for _, at, _ in pairs})
    ends = [end for _, _, number in pairs for end in (number.value, *(number.ci95 or ()))]
    x = scale_of(loads, LEFT + 24, RIGHT - 24)
    y = scale_of([*ends, *limits], BOTTOM, TOP)
    sign = marks([name for name, _ in curves])
    drawn: list[Child] = [axes(x, y, _LOADS[load], "TTFT p90, ms", loads)]
    for limit in sorted(limits):
        drawn.append(el("path", d=f"M{LEFT},{coordinate(y(limit))}H{RIGHT}", class_="limit"))
        drawn.append(label(RIGHT - 4, y(limit) - 5, f"SLO {limit:g} ms", "halo whole", "end"))
    drawn += [_point(pair, x, y, sign[name]) for name, _, own in placed for pair in own]
    describe = "; ".join(
        f"{name}, {point.name}: {format_number(number.value)} ms" for name, _, own in placed for point, _, number in own
    )
    drawing = svg(f"TTFT p90 against {_LOADS[load]}", describe[:4000], WIDTH, BOTTOM + 44, *drawn)
    note = "Down is better. Bars: 95 % intervals over repeats, from 3 on. The dashed line is the limit of the SLO."
    return figure(f"Time to the first token (p90) against {_LOADS[load]}", [_legend(sign), drawing], note)


_Pair = tuple[CurvePoint, PointValue, PointValue]


def _pairs(curve: ServingCurve, across: str, up: str) -> list[_Pair]:
    """Return the measured points that have both numbers."""
    return [
        (point, point.values[across], point.values[up])
        for point in curve.points
        if point.state == "measured" and across in point.values and up in point.values
    ]


def _loads(curve: ServingCurve, load: str) -> list[_Pair]:
    """Return the points that have such a load, with it and with TTFT p90."""
    return [
        (point, PointValue(value=at), number)
        for point, number, _ in _pairs(curve, "ttft_p90_ms", "ttft_p90_ms")
        if (at := point.concurrency if load == "concurrency" else point.rate) is not None
    ]


def _end(numbers: Sequence[PointValue]) -> float:
    """Return the end of an axis that holds some numbers, with their intervals unless these reach far beyond all."""
    reach = _MOST_REACH * max(number.value for number in numbers)
    return axis_end(min(reach, max(end for number in numbers for end in (number.value, *(number.ci95 or ())))))


def _steps(pairs: Sequence[_Pair], x: Scale, y: Scale) -> str:
    """Return the border of the points' area: at each x the highest point that is as far right or farther."""
    path, highest = "", 0.0
    # From the right: a point is on the border where none before it is higher.
    for _, across, up in sorted(pairs, key=lambda pair: (-pair[1].value, -pair[2].value)):
        if up.value > highest:
            path += f"{'H' if path else 'M'}{coordinate(x(across.value))}" + ("" if path else f",{coordinate(y(0))}")
            path += f"V{coordinate(y(up.value))}"
            highest = up.value
    return f"{path}H{coordinate(x(0))}" if path else ""


def _point(pair: _Pair, x: Scale, y: Scale, mark: str) -> Markup:
    """Return a point with its intervals. All of its numbers are its tooltip."""
    point, across, up = pair
    at_x, at_y = x(across.value), y(up.value)
    bars = interval_path(across.ci95, x, at_y, is_upright=False) + interval_path(up.ci95, y, at_x, is_upright=True)
    numbers = ", ".join(
        f"{POINT_METRICS[name].label} {format_number(number.value)} {POINT_METRICS[name].units}".rstrip()
        for name, number in point.values.items()
        if name in POINT_METRICS
    )
    return el(
        "g",
        el("title", f"{point.name}: {numbers}"),
        el("path", d=bars, class_="whisker") if bars else None,
        el("g", marker(mark, at_x, at_y), class_=f"dots {mark}"),
    )


def _close_ones(pairs: Sequence[_Pair], x: Scale, y: Scale) -> list[list[_Pair]]:
    """Return the points in groups whose labels would overlap: where a server is saturated, loads lie on each other."""
    groups: list[list[_Pair]] = []
    for pair in sorted(pairs, key=lambda pair: y(pair[2].value)):
        last = groups[-1][-1] if groups else None
        is_close = (
            last is not None
            and y(pair[2].value) - y(last[2].value) < _LABEL_HEIGHT
            and abs(x(pair[1].value) - x(last[1].value)) < _LABEL_WIDTH
        )
        groups[-1].append(pair) if is_close else groups.append([pair])
    return groups


def _load_labels(curve: ServingCurve, pairs: Sequence[_Pair], x: Scale, y: Scale, *, is_above: bool) -> Markup:
    """Return the loads of points, right above the highest or left below the lowest: so the labels of two curves lie apart."""
    in_order = sorted(pairs, key=lambda pair: curve.points.index(pair[0]))
    text = ", ".join(_load_text(curve, point) for point, _, _ in in_order)
    across = [x(number.value) for _, number, _ in pairs]
    up = [y(number.value) for _, _, number in pairs]
    right, left = max(across) + 7, min(across) - 7
    wide = _LETTER * len(text)
    is_right = right + wide <= WIDTH if is_above else left < wide
    at_y = min(up) - 7 if is_above else max(up) + 16
    return label(right if is_right else left, at_y, text, "dim halo whole", "start" if is_right else "end")


def _load_text(curve: ServingCurve, point: CurvePoint) -> str:
    load = point.name
    if point.concurrency is not None:
        load = f"c {point.concurrency:g}"
    elif point.rate is not None:
        load = f"{point.rate:g}/s"
    return load + (" ★" if point.name == curve.best else "") + (" ✕" if point.meets_slo is False else "")


def _legend(sign: dict[str, str]) -> Markup | None:
    return plot_legend(sign) if len(sign) > 1 else None
