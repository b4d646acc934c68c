"""The common parts of drawings with two axes of numbers: frame, scales, and intervals along either axis."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.analysis.intervals import Interval
from milabench.pages.axis import Scale, coordinate, log_ticks, short, ticks
from milabench.pages.markup import Child, Markup, el
from milabench.pages.plots import WIDTH, axis_grid, label

LEFT, RIGHT, TOP, BOTTOM = 84, WIDTH - 60, 18, 348
_LOG_FROM = 10  # times the smallest value, from which an axis is logarithmic


def axis_end(highest: float) -> float:
    """Return where an axis from zero on ends that holds a value: above zero, and finite."""
    return min(1.08 * highest, 1e300) if highest > 1e-300 else 1.0


def scale_of(values: Sequence[float], start: float, stop: float) -> Scale:
    """Return a scale of some values, logarithmic where they lie far apart, else from zero on."""
    low, high = min(values), max(values)
    if low > 1e-300 and _LOG_FROM * low <= high < 1e300:
        return Scale(low=low / 1.15, high=high * 1.15, start=start, stop=stop, is_log=True)
    return Scale(low=0, high=axis_end(high), start=start, stop=stop)


def axes(x: Scale, y: Scale, across: str, up: str, marked: Sequence[float] = ()) -> Markup:
    """Return the grid with the names of both axes. `marked` are numbers to show along the first instead of round ones."""
    drawn: list[Child] = [axis_grid(x, marked or ticks(x.low, x.high, 8), TOP, BOTTOM)]
    for tick in log_ticks(y.low, y.high) if y.is_log else ticks(y.low, y.high, 8):
        drawn.append(el("path", d=f"M{LEFT},{coordinate(y(tick))}H{RIGHT}", class_="grid"))
        drawn.append(label(LEFT - 8, y(tick) + 4, short(tick), "dim", "end"))
    return el("g", *drawn, label(LEFT, 11, up, "dim"), label(RIGHT, BOTTOM + 36, across, "dim", "end"))


def interval_path(interval: Interval | None, scale: Scale, at: float, *, is_upright: bool) -> str:
    """Return the path of an interval with its ends, along an axis at a place of the other. No end where it goes on."""
    if interval is None:
        return ""
    low, high = (coordinate(scale(min(end, scale.high))) for end in interval)
    ends = [coordinate(scale(end)) for end in interval if end <= scale.high]
    beside = coordinate(at - 3)
    if is_upright:
        return f"M{coordinate(at)},{low}V{high}" + "".join(f"M{beside},{end}h6" for end in ends)
    return f"M{low},{coordinate(at)}H{high}" + "".join(f"M{end},{beside}v6" for end in ends)
