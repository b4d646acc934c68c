"""Drawings as SVG. Nothing is encoded by colour alone: shapes, dashes, hatching and words carry it as well."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milabench.analysis.intervals import Interval
from milabench.pages.axis import Scale, padded, ratio_ticks, short, ticks
from milabench.pages.axis import coordinate as at
from milabench.pages.markup import Child, Markup, el
from milabench.report.labels import format_number

SERIES = "abcdef"
"""The classes that distinguish systems and steps: each has a colour and a dash of its own."""

WIDTH = 960
_LEFT = 232
_TOP, _ROW = 10, 24  # of drawings with a row for each name
_LETTERS = 30  # of a label, more of which would run into the drawing
_FASTER = 64  # width of the word above what is faster, with its distance from the line
_NOTE = 110  # of the text that replaces a drawing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A line of a forest plot. Without a value `note` is shown instead."""

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
    """A line of values with their mean and interval, `mark` being a value of SERIES."""

    label: str
    values: tuple[float, ...]
    centre: float | None = None
    interval: Interval | None = None
    mark: str = "a"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A line of a value and, where known, its possible maximum."""

    label: str
    value: float
    text: str
    most: float | None = None
    mark: str = "a"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwingBar:
    """A line from a result at the lower bound of an input to the result at its upper bound."""

    label: str
    low: float
    high: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionLine:
    """A distribution: values at `QUANTILES` of analysis.traces."""

    label: str
    values: tuple[float, ...]
    mark: str = "a"
    is_thin: bool = False


def svg(title: str, describe: str, width: float, height: float, *children: Child) -> Markup:
    """Return a drawing with a name and a description for screen readers."""
    # The title first, where SVG 1.1 wants it for the sake of older readers.
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
    """Return a drawing under its heading. On a narrow screen it is scrolled, not shrunk to nothing."""
    return el(
        "figure",
        el("figcaption", caption),
        el("div", drawing, class_="scroll", tabindex="0", role="group", aria_label="drawing, can be scrolled sideways"),
        el("p", note, class_="note") if note else None,
    )


def patterns() -> Markup:
    """Return the fill patterns of the page."""
    line = el("path", d="M0,6 6,0", class_="hatchline")
    cross = el("path", d="M0,0 6,6M0,6 6,0", class_="crossline")
    fills = [
        el("pattern", path, id=name, width="6", height="6", patternUnits="userSpaceOnUse")
        for name, path in (("hatch", line), ("cross", cross))
    ]
    return el("svg", el("defs", fills), class_="patterns", width="0", height="0", aria_hidden="true")


def label(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> Markup:
    """Return text, shortened to fit unless its kind says `whole`. The full text is its tooltip."""
    cut = text if len(text) <= _LETTERS or "whole" in kind else f"{text[: _LETTERS - 1]}…"
    whole = el("title", text) if cut != text else None
    end = None if anchor == "start" else anchor
    return el("text", whole, cut, x=at(x), y=at(y), class_=kind or None, text_anchor=end)


# ---------------------------------------------------------------------------------------------------------------- forest


def forest(title: str, ratios: Sequence[Ratio]) -> Markup:
    """Draw ratios and intervals on a logarithmic axis, over the band of the margin."""
    right, row, top = WIDTH - 330, 26, 24
    low, high = _ratio_range(ratios)
    scale = Scale(low=low, high=high, start=_LEFT, stop=right, is_log=True)
    bottom = top + row * len(ratios)
    drawn: list[Child] = [_band(ratio, scale, top + row * position, row) for position, ratio in enumerate(ratios)]
    middle = min(scale(1), right - _FASTER)  # of the two words, which must not reach the next heading
    drawn += [
        axis_grid(scale, ratio_ticks(low, high), top, bottom, ratio=True),
        label(middle - 12, 14, "◀ slower", "dim", "end"),
        label(middle + 12, 14, "faster ▶", "dim"),
        label(right + 96, 14, "ratio and 95 % interval", "dim whole", "middle"),
        label(right + 200, 14, "verdict", "dim"),
    ]
    drawn += [_ratio(ratio, scale, top + row * (position + 0.5), right) for position, ratio in enumerate(ratios)]
    description = "; ".join(f"{ratio.label}: {_ratio_text(ratio)}" for ratio in ratios)
    return svg(title, description, WIDTH, bottom + 26, *drawn)


def _ratio_range(ratios: Sequence[Ratio]) -> Interval:
    values = [ratio.value for ratio in ratios if ratio.value is not None]
    margins = [ratio.margin for ratio in ratios] or [0.01]
    low, high = min([*values, 1 / (1 + max(margins))]), max([*values, 1 + max(margins)])
    # A wide interval must not squeeze all others; what lies outside is cut, with an arrow.
    reach = max(high / low, 1.05)
    ends = [end for ratio in ratios if ratio.interval for end in ratio.interval]
    low, high = max(min([low, *ends]), low / reach), min(max([high, *ends]), high * reach)
    room = (high / low) ** 0.04
    return low / room, high * room


def _band(ratio: Ratio, scale: Scale, y: float, height: float) -> Markup:
    """Return the band of the margin, in which nothing is called faster or slower."""
    # Not 1 - margin: whichever system is the first, the same two are equivalent.
    start, stop = scale(1 / (1 + ratio.margin)), scale(1 + ratio.margin)
    return el("rect", x=at(start), y=at(y), width=at(stop - start), height=at(height), class_="band")


def _ratio(ratio: Ratio, scale: Scale, y: float, right: float) -> Markup:
    name = label(8, y + 4, ratio.label, "total" if ratio.is_total else "")
    kind = "whole total" if ratio.is_total else "whole"
    drawn: list[Child] = [el("a", name, href=ratio.link) if ratio.link else name]
    if ratio.value is None:
        text = ratio.note if len(ratio.note) <= _NOTE else f"{ratio.note[: _NOTE - 1]}…"
        return el("g", *drawn, label(scale.start + 8, y + 4, f"✕ {text}", "dim halo whole"))
    interval = "[{:.4f}, {:.4f}]".format(*ratio.interval) if ratio.interval else "(no interval)"
    verdict = {"DIFFERENT-BUT-SMALL": "DIFF.-BUT-SMALL"}.get(ratio.verdict, ratio.verdict) + " ?" * ratio.is_suspect
    return el(
        "g",
        *drawn,
        _whisker(ratio.interval, scale, y) if ratio.interval else None,
        _verdict_mark(ratio, scale(ratio.value), y),
        label(right + 190, y + 4, f"{ratio.value:.4f} {interval}", kind, "end"),
        label(right + 200, y + 4, f"{_SIGNS.get(ratio.verdict, '○')} {verdict}", kind),
    )


_SIGNS = {"FASTER": "▲", "SLOWER": "▼", "EQUIVALENT": "=", "DIFFERENT-BUT-SMALL": "≈", "INCONCLUSIVE": "○"}


def verdict_sign(verdict: str) -> str:
    """Return the shape of a verdict."""
    return _SIGNS.get(verdict, "")


def _ratio_text(ratio: Ratio) -> str:
    if ratio.value is None:
        return ratio.note
    interval = f", 95 % from {ratio.interval[0]:.4f} to {ratio.interval[1]:.4f}" if ratio.interval else ", no interval"
    return f"{ratio.value:.4f}{interval}, {ratio.verdict}" + (", suspect" if ratio.is_suspect else "")


def _verdict_mark(ratio: Ratio, x: float, y: float) -> Markup:
    if ratio.is_total:
        return marker("index", x, y, "mark total")
    kinds = {"FASTER": "better", "SLOWER": "worse", "EQUIVALENT": "level", "DIFFERENT-BUT-SMALL": "level"}
    return marker(ratio.verdict, x, y, f"mark {kinds.get(ratio.verdict, 'open')}", radius=5)


# Verdicts and SERIES: where a shape begins, from its centre, and how it goes on. A name without a shape is a circle.
_SHAPES = {
    "FASTER": (-6, 5, "h12l-6,-11z"),
    "SLOWER": (-6, -5, "h12l-6,11z"),
    "EQUIVALENT": (-5, -5, "h10v10h-10z"),
    "DIFFERENT-BUT-SMALL": (-6, 0, "l6,-6 6,6 -6,6z"),
    "index": (-9, 0, "l9,-7 9,7 -9,7z"),
    "b": (-4, -4, "h8v8h-8z"),
    "c": (-5, 4, "h10l-5,-9z"),
    "d": (-5, 0, "l5,-5 5,5 -5,5z"),
    "e": (-5, -4, "h10l-5,9z"),
    "f": (-5, -1.5, "h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z"),
}


def marker(name: str, x: float, y: float, kind: str | None = None, *, radius: int = 4) -> Markup:
    """Return the shape of a verdict or of a value of SERIES around a place."""
    if name not in _SHAPES:
        return el("circle", cx=at(x), cy=at(y), r=radius, class_=kind)
    across, down, outline = _SHAPES[name]
    return el("path", d=f"M{at(x + across)},{at(y + down)}{outline}", class_=kind)


def _whisker(interval: Interval, scale: Scale, y: float) -> Markup:
    ends = [scale(end) for end in interval]
    path = f"M{at(ends[0])},{at(y)}H{at(ends[1])}"
    for end, x, sign in ((interval[0], ends[0], 1), (interval[1], ends[1], -1)):
        arrow = f"M{at(x + 6 * sign)},{at(y - 5)}L{at(x)},{at(y)}l{6 * sign},5"
        path += f"M{at(x)},{at(y - 5)}v10" if scale.holds(end) else arrow
    return el("path", d=path, class_="whisker")


# ------------------------------------------------------------------------------------------------------------------ dots


def _rows_drawing(
    title: str,
    scale: Scale,
    units: str,
    rows: Sequence[tuple[str, str, Child]],
    *,
    describe: str = "",
    sign: str = "",
    line: tuple[float, str] | None = None,
) -> Markup:
    """Return a drawing of rows (name, note, the drawing between the two), in lines over a grid.

    `sign` follows the numbers of the axis. `line` is an upright line: its value and its class.
    """
    bottom = _TOP + _ROW * len(rows)
    drawn: list[Child] = [axis_grid(scale, ticks(scale.low, scale.high), _TOP, bottom, sign=sign)]
    if line is not None:
        drawn.append(el("path", d=f"M{at(scale(line[0]))},{_TOP}V{bottom}", class_=line[1]))
    drawn.append(label(WIDTH - 4, bottom + 18, units, "dim", "end"))
    for position, (name, text, content) in enumerate(rows):
        y = _middle(position) + 4
        drawn += [label(8, y, name), content, label(scale.stop + 12, y, text, "whole")]
    describe = describe or "; ".join(f"{name}: {text}" for name, text, _ in rows)
    return svg(title, f"in {units}. {describe}"[:4000], WIDTH, bottom + 26, *drawn)


def _middle(position: int) -> float:
    """Return the height at which a row is drawn."""
    return _TOP + _ROW * (position + 0.5)


def dots(title: str, rows: Sequence[Dots], *, units: str, is_relative: bool = False) -> Markup:
    """Draw every value of each row, its mean as a bar and the interval of the mean as a whisker."""
    values = [value for entry in rows for value in (*entry.values, *(entry.interval or ()))]
    low, high = padded([*values, *([0.0] if is_relative else [])])
    scale = Scale(low=low, high=high, start=_LEFT, stop=WIDTH - 190)
    drawn = []
    for position, entry in enumerate(rows):
        y, content = _middle(position), list[Child]()
        if entry.interval is not None:
            content.append(_whisker(entry.interval, scale, y))
        if entry.centre is not None:
            content.append(el("path", d=f"M{at(scale(entry.centre))},{at(y - 8)}v16", class_=f"mean {entry.mark}"))
        content.append(
            el("g", [marker(entry.mark, scale(value), y) for value in entry.values], class_=f"dots {entry.mark}")
        )
        drawn.append((entry.label, entry.note, content))
    describe = "; ".join(f"{entry.label}: {', '.join(map(format_number, entry.values))}" for entry in rows)
    if not is_relative:
        return _rows_drawing(title, scale, units, drawn, describe=describe)
    return _rows_drawing(title, scale, units, drawn, describe=describe, sign="%", line=(0.0, "one"))


# ------------------------------------------------------------------------------------------------------------------ bars


def bars(title: str, rows: Sequence[Bar], *, units: str, limit: float | None = None) -> Markup:
    """Draw a bar for each value from zero on, with the value next to it and its maximum as a frame around it."""
    high = max((value for bar in rows for value in (bar.value, bar.most or 0.0)), default=1.0) or 1.0
    scale = Scale(low=0.0, high=high, start=_LEFT, stop=WIDTH - 220)
    drawn = []
    for position, bar in enumerate(rows):
        y, width = _middle(position), max(1.0, scale(bar.value) - _LEFT)
        content: list[Child] = []
        if bar.most is not None:
            frame = at(scale(bar.most) - _LEFT)
            content.append(el("rect", x=_LEFT, y=at(y - 8), width=frame, height="16", class_="frame"))
        content.append(el("rect", x=_LEFT, y=at(y - 6), width=at(width), height="12", class_=f"bar {bar.mark}"))
        drawn.append((bar.label, bar.text, content))
    return _rows_drawing(title, scale, units, drawn, line=None if limit is None else (limit, "limit"))


def tornado(title: str, rows: Sequence[SwingBar], *, centre: float, units: str) -> Markup:
    """Draw a bar to either side of the centre for each input: framed towards its lower bound, filled towards its upper bound."""
    low, high = padded([centre, *(end for row in rows for end in (row.low, row.high))])
    scale = Scale(low=low, high=high, start=_LEFT, stop=WIDTH - 220)
    drawn = []
    for position, row in enumerate(rows):
        y, content = _middle(position), list[Child]()
        for end, looks in (
            (row.low, ({"class_": "frame"}, {"fill": "url(#hatch)"})),
            (row.high, ({"class_": "bar a"},)),
        ):
            left, right = sorted((scale(centre), scale(end)))
            place = {"x": at(left), "y": at(y - 7), "width": at(max(1.0, right - left)), "height": "14"}
            content += [el("rect", **place, **look) for look in looks]
        drawn.append((row.label, row.text, content))
    return _rows_drawing(title, scale, units, drawn, line=(centre, "one"))


# --------------------------------------------------------------------------------------------------------- distributions


def distribution(
    title: str, lines: Sequence[DistributionLine], shares: Sequence[float], *, units: str
) -> tuple[Markup, str]:
    """Draw the share of observations at or below each value, a line each. Return it with a note on clipped values."""
    left, right, top, bottom = 60, WIDTH - 250, 10, max(210, 10 + 22 * len(lines))
    # One outlier in a hundred would squeeze all else to a vertical line.
    inner = [value for line in lines for share, value in zip(shares, line.values, strict=True) if 0.01 <= share <= 0.99]
    low, high = padded(inner)
    x, y = Scale(low=low, high=high, start=left, stop=right), Scale(low=0, high=1, start=bottom, stop=top)
    drawn = [axis_grid(x, ticks(low, high), top, bottom)]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        drawn.append(el("path", d=f"M{left},{at(y(share))}H{right}", class_="grid"))
        drawn.append(label(left - 8, y(share) + 4, f"{share:.0%}", "dim", "end"))
    for position, line in enumerate(lines):
        points = " ".join(f"{at(x(value))},{at(y(share))}" for share, value in zip(shares, line.values, strict=True))
        kind = f"line {line.mark}" + (" thin" if line.is_thin else "")
        note_y = 22 + 22 * position
        drawn.append(el("path", d=f"M{points}", class_=kind))
        drawn.append(el("path", d=f"M{right + 12},{note_y - 4}h26", class_=kind))
        drawn.append(label(right + 44, note_y, line.label))
    drawn.append(label(WIDTH - 4, bottom + 18, units, "dim", "end"))
    middle = shares.index(0.5)
    texts = ((line.label, *(format_number(line.values[index]) for index in (middle, 0, -1))) for line in lines)
    medians = "; ".join("{}: median {}, all between {} and {}".format(*words) for words in texts)
    off = any(not (x.holds(line.values[0]) and x.holds(line.values[-1])) for line in lines)
    note = f"Points beyond the axis are drawn at the edge. {medians}." if off else ""
    describe = f"share of observations at or below a rate, in {units}. {medians}"
    return svg(title, describe, WIDTH, bottom + 26, *drawn), note


# -------------------------------------------------------------------------------------------------------------- elements


def axis_grid(
    scale: Scale, values: Sequence[float], top: float, bottom: float, *, ratio: bool = False, sign: str = ""
) -> Markup:
    """Draw lines at round numbers, with the numbers below."""
    drawn: list[Child] = []
    apart = -math.inf
    for tick in values:
        x = scale(tick)
        drawn.append(el("path", d=f"M{at(x)},{at(top)}V{at(bottom)}", class_="one" if ratio and tick == 1 else "grid"))
        text = f"{tick:g}" if ratio else f"{short(tick)}{sign}"
        # About 8 units a letter at the size of the style sheet: labels that would touch are left out, their lines stay.
        if x - apart > 8 * len(text) + 6:
            drawn.append(label(x, bottom + 18, text, "dim", "middle"))
            apart = x
    return el("g", *drawn)


def plot_legend(sign: Mapping[str, str]) -> Markup:
    """Return the legend of shapes and names: a value of SERIES for each name."""
    items = []
    for name, mark in sign.items():
        drawn = (el("path", d="M0,8h30", class_=f"line {mark}"), el("g", marker(mark, 15, 8), class_=f"dots {mark}"))
        picture = el("svg", *drawn, width="30", height="16", viewBox="0 0 30 16", aria_hidden="true")
        items.append(el("li", picture, " ", name))
    return el("ul", items, class_="legend")


def marks(names: Sequence[str]) -> dict[str, str]:
    """Assign a value of SERIES to each name, repeating when there are more names."""
    return {name: SERIES[position % len(SERIES)] for position, name in enumerate(names)}
