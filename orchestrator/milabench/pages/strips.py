"""The course of a step as a drawing: its rate, then power, clock, temperature, load and memory on the same axis of time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from milabench.analysis.traces import Curve, DeviceTrace, RankTrace, Trace
from milabench.pages.axis import Scale, padded, short, ticks
from milabench.pages.axis import coordinate as at
from milabench.pages.markup import Child, Markup, el
from milabench.pages.plots import SERIES, label, svg

_WIDTH, _LEFT, _RIGHT = 960, 150, 944
_TOP, _RATE, _STRIP, _GAP = 20.0, 84, 40, 12
_DEVICES = {"power": "W", "clock": "MHz", "temperature": "°C", "load": "%", "memory": "MiB"}
_THROTTLED_IN = ("power", "clock", "temperature")
_MOST_LINES = 8
_MOST_MARKS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """A quantity: its name and unit, a curve for each rank or device, its drawn height."""

    name: str
    unit: str
    curves: tuple[Curve, ...]
    height: float


def curves_of(trace: Trace) -> int:
    """Return the number of curves of a step."""
    return len(_ranks(trace)) + sum(len(device.curves) for device in _devices(trace)) + len(trace.host)


def step_timeline(trace: Trace, buckets: int) -> Markup:
    """Draw a step, every curve in at most `buckets` buckets."""
    is_timed = all(rank.rate.is_timed for rank in trace.ranks)
    panels = [panel for panel in _panels(trace, buckets) if is_timed or panel.name == "rate"]
    last = max(1e-9, *(time for panel in panels for curve in panel.curves for time in curve.time), 0.0)
    x = Scale(low=0.0, high=last, start=_LEFT, stop=_RIGHT)
    top, drawn = _TOP, list[Child]()
    for panel in panels:
        drawn.append(_panel(panel, x, top, trace))
        top += panel.height + _GAP
    bottom = top - _GAP
    drawn.append(_axis(x, bottom, is_timed))
    if trace.window is not None and is_timed:
        drawn.append(_window(trace.window, x, bottom))
    drawn += _warmup(trace, x, panels)
    return svg(f"course of {trace.step}", "; ".join(_description(trace)), _WIDTH, bottom + 24, *drawn)


def timeline_notes(trace: Trace) -> list[str]:
    """Return the notes next to the drawing: throttling, and missing data."""
    notes = []
    for device in trace.devices:
        name = f"device {device.key}"
        if device.lost:
            notes.append(f"{name} was lost: {device.lost}")
        if not device.throttle_samples:
            notes.append(f"{name}: no sample says whether it was throttled")
            continue
        if device.held_back:
            reasons = ", ".join(sorted({reason for span in device.throttled for reason in span.reasons}))
            share = device.held_back / device.throttle_samples
            notes.append(f"{name}: THROTTLED in {share:.1%} of {device.throttle_samples} samples ({reasons})")
        else:
            notes.append(f"{name}: not throttled in any of {device.throttle_samples} samples")
        if device.capped:
            share = device.capped / device.throttle_samples
            notes.append(f"{name}: at its power limit in {share:.0%} of them, which is normal at work")
    if not trace.devices:
        notes.append("no accelerator was sampled: neither power nor clock nor temperature nor throttling can be shown")
    if len(trace.ranks) > _MOST_LINES or len(trace.devices) > _MOST_LINES:
        numbers = f"{len(trace.ranks)} and {len(trace.devices)}"
        notes.append(f"the first {_MOST_LINES} ranks and devices are drawn, of {numbers}")
    if not trace.ranks:
        notes.append("no observations: there is no series of rates")
    elif not all(span.rate.is_timed for span in trace.ranks):
        notes.append("its records have no times: the axis counts observations, and sensors cannot be drawn")
    return notes


def _panels(trace: Trace, buckets: int) -> list[_Panel]:
    ranks, devices = _ranks(trace), _devices(trace)
    sources = [("rate", ranks[0].units, [rank.rate for rank in ranks], _RATE)] if ranks else []
    for name, unit in _DEVICES.items():
        sources.append((name, unit, [device.curves[name] for device in devices if name in device.curves], _STRIP))
    for name in ("load", "memory"):
        sources.append((f"host {name}", _DEVICES[name], [trace.host[name]] if name in trace.host else [], _STRIP))
    panels = []
    for name, unit, curves, height in sources:
        # Sensors record shares from 0 to 1; a rate is drawn in whatever units it was recorded.
        scaled = map(_percent, curves) if unit == "%" and height == _STRIP else curves
        drawn = tuple(thinned(curve, buckets) for curve in scaled)
        panels += [_Panel(name=name, unit=unit, curves=drawn, height=height)] if drawn else []
    return panels


def _ranks(trace: Trace) -> Sequence[RankTrace]:
    return trace.ranks[:_MOST_LINES]


def _devices(trace: Trace) -> Sequence[DeviceTrace]:
    return trace.devices[:_MOST_LINES]


def thinned(curve: Curve, buckets: int) -> Curve:
    """Return the curve in at most `buckets` buckets, keeping the minimum and maximum of each."""
    length = len(curve.time)
    if length <= buckets:
        return curve
    bounds = [(length * bucket // buckets, length * (bucket + 1) // buckets) for bucket in range(buckets)]
    return replace(
        curve,
        time=tuple(curve.time[stop - 1] for _, stop in bounds),
        low=tuple(min(curve.low[start:stop]) for start, stop in bounds),
        high=tuple(max(curve.high[start:stop]) for start, stop in bounds),
    )


def _percent(curve: Curve) -> Curve:
    low, high = (tuple(100 * value for value in values) for values in (curve.low, curve.high))
    return replace(curve, low=low, high=high)


def _panel(panel: _Panel, x: Scale, top: float, trace: Trace) -> Markup:
    low, high = _range(panel, _warm_until(trace))
    y = Scale(low=low, high=high, start=top + panel.height, stop=top)
    drawn: list[Child] = [el("rect", x=_LEFT, y=at(top), width=_RIGHT - _LEFT, height=at(panel.height), class_="panel")]
    if panel.name in _THROTTLED_IN:
        drawn += _throttling(trace, x, top, panel)
    drawn += [
        label(4, top + 14, panel.name),
        label(4, top + 29, panel.unit, "dim"),
        label(_LEFT - 6, top + 10, short(high), "dim", "end"),
        label(_LEFT - 6, top + panel.height, short(low), "dim", "end"),
    ]
    for position, curve in enumerate(panel.curves):
        drawn.append(el("path", d=_area(curve, x, y), class_=f"area {SERIES[position % len(SERIES)]}"))
    return el("g", *drawn)


def _range(panel: _Panel, warmup: float) -> tuple[float, float]:
    """Return the range of a panel: the whole range, but for a rate without warm-up and single outliers."""
    if panel.unit == "%":
        return 0.0, max(100.0, *(value for curve in panel.curves for value in curve.high))
    is_rate = panel.height == _RATE
    after = warmup if is_rate and any(curve.time[-1] > warmup for curve in panel.curves) else -math.inf
    # Compilation and cold caches make the first steps many times slower: with them, the rest would be a flat line.
    kept = [
        (low, high)
        for curve in panel.curves
        for time, low, high in zip(curve.time, curve.low, curve.high, strict=True)
        if time > after
    ]
    lows, highs = sorted(low for low, _ in kept), sorted(high for _, high in kept)
    cut = len(kept) // 20 if is_rate and len(kept) >= 20 else 0
    low, high = padded([lows[cut], highs[-1 - cut]], 0.15 if is_rate else 0.06)
    return (max(0.0, low) if lows[0] >= 0 else low), high


def _area(curve: Curve, x: Scale, y: Scale) -> str:
    """Trace the maxima forth and the minima back. A line where each bucket holds a single reading."""
    places = [at(x(time)) for time in curve.time]
    upper = [f"{position},{at(y(value))}" for position, value in zip(places, curve.high, strict=True)]
    if curve.low == curve.high:
        # A path of one point is invisible.
        if len(upper) == 1:
            return f"M{upper[0]}h2"
        return "M" + " ".join(upper)
    lower = [f"{position},{at(y(value))}" for position, value in zip(places, curve.low, strict=True)]
    return "M" + " ".join([*upper, *reversed(lower)]) + "z"


def _throttling(trace: Trace, x: Scale, top: float, panel: _Panel) -> Iterable[Markup]:
    marked = [span for device in _devices(trace) for span in device.throttled][:_MOST_MARKS]
    for span in marked:
        start, stop = x(span.start), x(span.stop)
        yield el(
            "rect",
            el("title", f"throttled: {', '.join(span.reasons)}"),
            x=at(start),
            y=at(top),
            # One sample lasts no time, and must be seen all the same.
            width=at(max(2.0, stop - start)),
            height=at(panel.height),
            class_="throttled",
        )
        if panel.name == "clock":
            text = "▼ throttled" if stop - start > 90 else "▼"
            yield label((start + stop) / 2, top + 12, text, "alarm halo", "middle")


def _window(window: tuple[float, float], x: Scale, bottom: float) -> Markup:
    start, stop = x(window[0]), x(window[1])
    return el(
        "g",
        el("path", d=f"M{at(start)},6V{at(bottom)}M{at(stop)},6V{at(bottom)}", class_="window"),
        label((start + stop) / 2, 14, "measured", "dim", "middle"),
    )


def _warm_until(trace: Trace) -> float:
    """Return when the last rank was warm. Minus infinity where no rank recorded a warm-up."""
    return max((rank.warmup for rank in trace.ranks if rank.warmup is not None), default=-math.inf)


def _warmup(trace: Trace, x: Scale, panels: Sequence[_Panel]) -> Iterable[Markup]:
    until = _warm_until(trace)
    if not panels or panels[0].name != "rate" or until == -math.inf:
        return
    stop = x(until)
    area = {"x": _LEFT, "y": at(_TOP), "width": at(stop - _LEFT), "height": at(panels[0].height)}
    yield el("rect", **area, class_="warm")
    if stop - _LEFT > 70:
        yield label((_LEFT + stop) / 2, _TOP - 6, "warm-up", "dim", "middle")


def _axis(x: Scale, bottom: float, is_timed: bool) -> Markup:
    drawn: list[Child] = []
    for tick in ticks(x.low, x.high, 8):
        position = x(tick)
        drawn.append(el("path", d=f"M{at(position)},{at(bottom)}v5", class_="whisker"))
        if position < _RIGHT - 60:
            drawn.append(label(position, bottom + 18, short(tick), "dim", "middle"))
    drawn.append(label(_RIGHT, bottom + 18, "seconds" if is_timed else "observations", "dim", "end"))
    return el("g", *drawn)


def _description(trace: Trace) -> Iterable[str]:
    for rank in trace.ranks:
        if rank.quantiles:
            middle = rank.quantiles[len(rank.quantiles) // 2]
            yield f"rank {rank.rank}: {rank.rate.count} observations, median {short(middle)} {rank.units} in the window"
    for device in trace.devices:
        for name, unit in _DEVICES.items():
            curve = device.curves.get(name)
            if curve is not None:
                times = 100.0 if unit == "%" else 1.0
                low, high = min(curve.low) * times, max(curve.high) * times
                yield f"device {device.key}: {name} from {short(low)} to {short(high)} {unit}"
    yield from timeline_notes(trace)
