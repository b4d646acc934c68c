"""Drawings as SVG. No drawing says anything by colour alone: shapes, dashes, hatching and words say it as well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from milabench.analysis.intervals import Interval
from milabench.report.html.axis import Scale, padded, ratio_ticks, short, ticks
from milabench.report.html.markup import Child, Markup, el
from milabench.report.model import format_number

SERIES = "abcdef"
"""What systems and steps are told apart by, as classes: each has a colour and a dash of its own."""

_WIDTH = 960
_LETTERS = 30  # of a label, more of which would run into the drawing
_NOTE = 110  # of what is told in place of a drawing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A line of a forest plot; without a value `note` is told in its place."""

    label: str
    value: float | None
    interval: Interval | None = None
    margin: float = 0.01
    verdict: str = ""
    note: str = ""
    is_total: bool = False
    is_suspect: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """A line of values with their mean and interval, `mark` being one of SERIES."""

    label: str
    values: tuple[float, ...]
    centre: float | None = None
    interval: Interval | None = None
    mark: str = "a"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A line of one value and, where it is known, what it can at most be."""

    label: str
    value: float
    most: float | None = None
    text: str = ""
    mark: str = "a"


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionLine:
    """A distribution: values at `QUANTILES` of analysis.traces."""

    label: str
    values: tuple[float, ...]
    mark: str = "a"
    is_thin: bool = False


def svg(title: str, describe: str, width: float, height: float, *children: Child) -> Markup:
    """Return a drawing with a name and a description for those who do not see it."""
    return el(
        "svg",
        el("title", title),
        el("desc", describe),
        *children,
        role="img",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
    )


def figure(caption: Child, drawing: Child, note: Child = None) -> Markup:
    """Return a drawing under its heading; on a narrow screen it is scrolled, not shrunk to nothing."""
    return el(
        "figure",
        el("figcaption", caption),
        el("div", drawing, class_="scroll", tabindex="0", role="group", aria_label="drawing, can be scrolled sideways"),
        el("p", note, class_="note") if note else None,
    )


def patterns() -> Markup:
    """Return what areas are filled with, wherever on the page they are."""
    line = el("path", d="M0,6 6,0", class_="hatchline")
    cross = el("path", d="M0,0 6,6M0,6 6,0", class_="crossline")
    return el(
        "svg",
        el(
            "defs",
            el("pattern", line, id="hatch", width="6", height="6", patternUnits="userSpaceOnUse"),
            el("pattern", cross, id="cross", width="6", height="6", patternUnits="userSpaceOnUse"),
        ),
        class_="patterns",
        width="0",
        height="0",
        aria_hidden="true",
    )


def label(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> Markup:
    """Return text, shortened to what fits unless its kind says `whole`; all of it is shown where a pointer rests on it."""
    cut = text if len(text) <= _LETTERS or "whole" in kind else f"{text[: _LETTERS - 1]}…"
    whole = el("title", text) if cut != text else None
    return el(
        "text", whole, cut, x=_at(x), y=_at(y), class_=kind or None, text_anchor=None if anchor == "start" else anchor
    )


# ---------------------------------------------------------------------------------------------------------------- forest


def forest(title: str, ratios: Sequence[Ratio]) -> Markup:
    """Return ratios with their intervals on a logarithmic axis, the band in which nothing is called faster or slower behind."""
    left, right, row, top = 232, _WIDTH - 330, 26, 24
    low, high = _ratio_range(ratios)
    scale = Scale(low=low, high=high, start=left, stop=right, is_log=True)
    bottom = top + row * len(ratios)
    drawn: list[Child] = [_band(one, scale, top + row * place, row) for place, one in enumerate(ratios)]
    drawn += [
        _grid(scale, ratio_ticks(low, high), top, bottom, ratio=True),
        label(scale(1) - 12, 14, "◀ slower", "dim", "end"),
        label(scale(1) + 12, 14, "faster ▶", "dim"),
        label(right + 96, 14, "ratio and 95 % interval", "dim whole", "middle"),
        label(right + 200, 14, "verdict", "dim"),
    ]
    for place, ratio in enumerate(ratios):
        drawn.append(_ratio(ratio, scale, top + row * (place + 0.5), right))
    description = "; ".join(f"{one.label}: {_ratio_text(one)}" for one in ratios)
    return svg(title, description, _WIDTH, bottom + 26, *drawn)


def _ratio_range(ratios: Sequence[Ratio]) -> Interval:
    values = [one.value for one in ratios if one.value is not None]
    margins = [one.margin for one in ratios] or [0.01]
    low, high = min([*values, 1 / (1 + max(margins))]), max([*values, 1 + max(margins)])
    # A wide interval may not squeeze all others; what it reaches beyond is cut, with an arrow.
    reach = max(high / low, 1.05)
    ends = [end for one in ratios if one.interval for end in one.interval]
    low, high = max(min([low, *ends]), low / reach), min(max([high, *ends]), high * reach)
    room = (high / low) ** 0.04
    return low / room, high * room


def _band(one: Ratio, scale: Scale, y: float, height: float) -> Markup:
    """Return where nothing is called faster or slower."""
    start, stop = scale(1 / (1 + one.margin)), scale(1 + one.margin)
    return el("rect", x=_at(start), y=_at(y), width=_at(stop - start), height=_at(height), class_="band")


def _ratio(one: Ratio, scale: Scale, y: float, right: float) -> Markup:
    name = label(8, y + 4, one.label, "total" if one.is_total else "")
    drawn: list[Child] = [el("a", name, href=one.link) if one.link else name]
    if one.value is None:
        text = one.note if len(one.note) <= _NOTE else f"{one.note[: _NOTE - 1]}…"
        return el("g", *drawn, label(scale.start + 8, y + 4, f"✕ {text}", "dim halo whole"))
    if one.interval is not None:
        drawn.append(_whisker(one.interval, scale, y))
        text = f"{one.value:.4f} [{one.interval[0]:.4f}, {one.interval[1]:.4f}]"
    else:
        text = f"{one.value:.4f} (no interval)"
    kind = "total" if one.is_total else ""
    drawn += [
        _verdict_mark(one, scale(one.value), y),
        label(right + 190, y + 4, text, f"whole {kind}".strip(), "end"),
        label(right + 200, y + 4, f"{_SIGNS.get(one.verdict, '○')} {_verdict_words(one)}", f"whole {kind}".strip()),
    ]
    return el("g", *drawn)


_SIGNS = {"FASTER": "▲", "SLOWER": "▼", "EQUIVALENT": "=", "DIFFERENT-BUT-SMALL": "≈", "INCONCLUSIVE": "○"}


def verdict_sign(verdict: str) -> str:
    """Return the shape that stands for a verdict."""
    return _SIGNS.get(verdict, "")


def _verdict_words(one: Ratio) -> str:
    words = {"DIFFERENT-BUT-SMALL": "DIFF.-BUT-SMALL"}.get(one.verdict, one.verdict)
    return words + (" ?" if one.is_suspect else "")


def _ratio_text(one: Ratio) -> str:
    if one.value is None:
        return one.note
    interval = f", 95 % from {one.interval[0]:.4f} to {one.interval[1]:.4f}" if one.interval else ", no interval"
    return f"{one.value:.4f}{interval}, {one.verdict}" + (", suspect" if one.is_suspect else "")


def _verdict_mark(one: Ratio, x: float, y: float) -> Markup:
    if one.is_total:
        return el("path", d=f"M{_at(x - 9)},{_at(y)}l9,-7 9,7 -9,7z", class_="mark total")
    shapes = {
        "FASTER": f"M{_at(x - 6)},{_at(y + 5)}h12l-6,-11z",
        "SLOWER": f"M{_at(x - 6)},{_at(y - 5)}h12l-6,11z",
        "EQUIVALENT": f"M{_at(x - 5)},{_at(y - 5)}h10v10h-10z",
        "DIFFERENT-BUT-SMALL": f"M{_at(x - 6)},{_at(y)}l6,-6 6,6 -6,6z",
    }
    kind = {"FASTER": "better", "SLOWER": "worse"}.get(one.verdict, "level")
    if one.verdict in shapes:
        return el("path", d=shapes[one.verdict], class_=f"mark {kind}")
    return el("circle", cx=_at(x), cy=_at(y), r="5", class_="mark open")


def _whisker(interval: Interval, scale: Scale, y: float) -> Markup:
    ends = [scale(end) for end in interval]
    path = f"M{_at(ends[0])},{_at(y)}H{_at(ends[1])}"
    for end, place, sign in ((interval[0], ends[0], 1), (interval[1], ends[1], -1)):
        path += (
            f"M{_at(place)},{_at(y - 5)}v10"
            if scale.holds(end)
            else f"M{_at(place + 6 * sign)},{_at(y - 5)}L{_at(place)},{_at(y)}l{6 * sign},5"
        )
    return el("path", d=path, class_="whisker")


# ------------------------------------------------------------------------------------------------------------------ dots


def dots(title: str, rows: Sequence[Dots], *, units: str, is_relative: bool = False) -> Markup:
    """Return every value of each row, its mean as a bar and the interval of the mean as a whisker."""
    left, right, row, top = 232, _WIDTH - 190, 24, 10
    values = [value for one in rows for value in (*one.values, *(one.interval or ()))]
    low, high = padded([*values, *([0.0] if is_relative else [])])
    scale = Scale(low=low, high=high, start=left, stop=right)
    bottom = top + row * len(rows)
    drawn = [_grid(scale, ticks(low, high), top, bottom, sign="%" if is_relative else "")]
    drawn.append(label(_WIDTH - 4, bottom + 18, units, "dim", "end"))
    if is_relative:
        drawn.append(el("path", d=f"M{_at(scale(0))},{top}V{bottom}", class_="one"))
    for place, one in enumerate(rows):
        y = top + row * (place + 0.5)
        drawn.append(label(8, y + 4, one.label))
        if one.interval is not None:
            drawn.append(_whisker(one.interval, scale, y))
        if one.centre is not None:
            drawn.append(el("path", d=f"M{_at(scale(one.centre))},{_at(y - 8)}v16", class_=f"mean {one.mark}"))
        drawn.append(el("g", [_dot(scale(value), y, one.mark) for value in one.values], class_=f"dots {one.mark}"))
        drawn.append(label(right + 12, y + 4, one.note, "whole"))
    description = "; ".join(f"{one.label}: {', '.join(map(format_number, one.values))}" for one in rows)
    return svg(title, f"in {units}. {description}"[:4000], _WIDTH, bottom + 26, *drawn)


def _dot(x: float, y: float, mark: str) -> Markup:
    """Return a shape for each of SERIES."""
    shapes = {
        "b": f"M{_at(x - 4)},{_at(y - 4)}h8v8h-8z",
        "c": f"M{_at(x - 5)},{_at(y + 4)}h10l-5,-9z",
        "d": f"M{_at(x - 5)},{_at(y)}l5,-5 5,5 -5,5z",
        "e": f"M{_at(x - 5)},{_at(y - 4)}h10l-5,9z",
        "f": f"M{_at(x - 5)},{_at(y - 1.5)}h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z",
    }
    if mark in shapes:
        return el("path", d=shapes[mark])
    return el("circle", cx=_at(x), cy=_at(y), r="4")


# ------------------------------------------------------------------------------------------------------------------ bars


def bars(title: str, rows: Sequence[Bar], *, units: str, limit: float | None = None) -> Markup:
    """Return a bar for each value from zero on, with the value beside it; what it can be at most as a frame around it."""
    left, right, row, top = 232, _WIDTH - 220, 22, 8
    high = max((value for one in rows for value in (one.value, one.most or 0.0)), default=1.0) or 1.0
    scale = Scale(low=0.0, high=high, start=left, stop=right)
    bottom = top + row * len(rows)
    drawn = [_grid(scale, ticks(0.0, high), top, bottom)]
    drawn.append(label(_WIDTH - 4, bottom + 18, units, "dim", "end"))
    if limit is not None:
        drawn.append(el("path", d=f"M{_at(scale(limit))},{top}V{bottom}", class_="limit"))
    for place, one in enumerate(rows):
        y = top + row * place
        drawn.append(label(8, y + 15, one.label))
        if one.most is not None:
            drawn.append(
                el("rect", x=left, y=_at(y + 3), width=_at(scale(one.most) - left), height="16", class_="frame")
            )
        width = max(1.0, scale(one.value) - left)
        drawn.append(el("rect", x=left, y=_at(y + 5), width=_at(width), height="12", class_=f"bar {one.mark}"))
        drawn.append(label(right + 12, y + 15, one.text or format_number(one.value), "whole"))
    description = "; ".join(f"{one.label}: {one.text or format_number(one.value)}" for one in rows)
    return svg(title, f"in {units}. {description}", _WIDTH, bottom + 26, *drawn)


# --------------------------------------------------------------------------------------------------------- distributions


def distribution(
    title: str, lines: Sequence[DistributionLine], shares: Sequence[float], *, units: str
) -> tuple[Markup, str]:
    """Return the share of observations at or below each value, a stepless line for each; and what of it is off the axis, if any."""
    left, right, top, bottom = 60, _WIDTH - 250, 10, max(210, 10 + 22 * len(lines))
    inner = [value for one in lines for share, value in zip(shares, one.values, strict=True) if 0.01 <= share <= 0.99]
    low, high = padded(inner)
    x, y = Scale(low=low, high=high, start=left, stop=right), Scale(low=0, high=1, start=bottom, stop=top)
    drawn = [_grid(x, ticks(low, high), top, bottom)]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        drawn.append(el("path", d=f"M{left},{_at(y(share))}H{right}", class_="grid"))
        drawn.append(label(left - 8, y(share) + 4, f"{share:.0%}", "dim", "end"))
    for place, one in enumerate(lines):
        points = [(x(value), y(share)) for share, value in zip(shares, one.values, strict=True)]
        kind = f"line {one.mark}" + (" thin" if one.is_thin else "")
        note_y = 22 + 22 * place
        drawn.append(el("path", d=_path(points), class_=kind))
        drawn.append(el("path", d=f"M{right + 12},{note_y - 4}h26", class_=kind))
        drawn.append(label(right + 44, note_y, one.label))
    drawn.append(label(_WIDTH - 4, bottom + 18, units, "dim", "end"))
    medians = "; ".join(
        f"{one.label}: median {format_number(one.values[shares.index(0.5)])}, all between {format_number(one.values[0])} and "
        f"{format_number(one.values[-1])}"
        for one in lines
    )
    off = any(not (x.holds(one.values[0]) and x.holds(one.values[-1])) for one in lines)
    note = f"Drawn at the edge is what lies beyond the axis. {medians}." if off else ""
    return svg(
        title, f"share of observations at or below a rate, in {units}. {medians}", _WIDTH, bottom + 26, *drawn
    ), note


# -------------------------------------------------------------------------------------------------------------- elements


def _grid(
    scale: Scale, at: Sequence[float], top: float, bottom: float, *, ratio: bool = False, sign: str = ""
) -> Markup:
    """Return lines through a drawing at round numbers, which are written below."""
    drawn: list[Child] = []
    apart = -math.inf
    for tick in at:
        x = scale(tick)
        drawn.append(
            el("path", d=f"M{_at(x)},{_at(top)}V{_at(bottom)}", class_="one" if ratio and tick == 1 else "grid")
        )
        text = f"{tick:g}" if ratio else f"{short(tick)}{sign}"
        if x - apart > 8 * len(text) + 6:
            drawn.append(label(x, bottom + 18, text, "dim", "middle"))
            apart = x
    return el("g", *drawn)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + " ".join(f"{_at(x)},{_at(y)}" for x, y in points)


def _at(value: float) -> str:
    """Return a place on paper, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def plot_legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """Return which shape stands for which name: (name, one of SERIES)."""
    return el(
        "ul",
        [
            el(
                "li",
                el(
                    "svg",
                    el("path", d="M0,8h30", class_=f"line {mark}"),
                    el("g", _dot(15, 8, mark), class_=f"dots {mark}"),
                    width="30",
                    height="16",
                    viewBox="0 0 30 16",
                    aria_hidden="true",
                ),
                " ",
                name,
            )
            for name, mark in entries
        ],
        class_="legend",
    )


def marks(names: Sequence[str]) -> dict[str, str]:
    """Return one of SERIES for each name, over again where there are more."""
    return {name: SERIES[place % len(SERIES)] for place, name in enumerate(names)}
