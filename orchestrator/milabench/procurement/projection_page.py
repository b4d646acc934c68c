"""The page of a projection: measured points with their intervals, the laws through them, and the projections beyond them."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.pages.axis import Scale, coordinate
from milabench.pages.markup import Child, Markup, badge, el, html_table, note
from milabench.pages.page import alert, article, document, tile
from milabench.pages.plots import WIDTH, figure, label, marker, plot_legend, svg
from milabench.pages.xy_axes import BOTTOM, LEFT, RIGHT, TOP, axes, axis_end, interval_path, scale_of
from milabench.procurement import projection_report as texts
from milabench.procurement.projection import LAWS, Projected, ScalingFit
from milabench.procurement.scaling_study import BenchScaling, MeasuredCount, ScalingStudy
from milabench.report.labels import format_number

_STEPS = 80  # of a curve
_MOST_REACH = 1.6  # times the largest value: the axis ends there, however wide the band is
_MARKS = dict(zip(LAWS, "abc", strict=True))
_POINTS = "e"


def projection_page(study: ScalingStudy) -> str:
    """Return the study as a page, with a section for each benchmark."""
    sections: list[tuple[str, str, Child]] = [
        (f"b{position}", scaling.bench, _section(scaling, study)) for position, scaling in enumerate(study.benchmarks)
    ]
    title = texts.projection_title(study)
    body, nav = article(
        title,
        texts.projection_sentence(study),
        [_tile(scaling) for scaling in study.benchmarks],
        alert("Not projected", "doubt", study.not_projected),
        [
            *sections,
            ("legend", "How to read it", note(*texts.LEGEND, f" Differs: {study.differs}." if study.differs else "")),
        ],
    )
    return document(f"milabench {title}"[:200], nav, body)


def _tile(scaling: BenchScaling) -> Markup:
    """Return the measured end next to the projected end, each with its kind."""
    last, furthest = scaling.measured[-1], scaling.projected[-1]
    is_tested = scaling.held_out is not None and scaling.held_out.is_within and not scaling.unsettled
    interval = texts.bounds_text(furthest.prediction)
    return tile(
        scaling.bench,
        f"{format_number(last.value)} {scaling.units}",
        f"measured on {last.count} {scaling.of}",
        f"projected to {furthest.count:g}: {format_number(furthest.centre)} {interval}",
        f"by {scaling.chosen.fit.law}",
        kind="good" if is_tested else "doubt",
    )


def _section(scaling: BenchScaling, study: ScalingStudy) -> Markup:
    projected = texts.projected_table(scaling)
    marked = [[badge(row[0], "doubt"), " "] for row in projected.rows]
    return el(
        "div",
        scaling_figure(scaling),
        html_table(texts.measured_table(scaling), can_filter=False),
        alert("Left out", "doubt", texts.left_out_entries(scaling)),
        el("div", html_table(projected, shown={0: marked}, can_filter=False), class_="projected"),
        [note(el("strong", name), f": {text}") for name, text in texts.remarks(scaling, study)],
        html_table(texts.laws_table(scaling), can_filter=False),
    )


def scaling_figure(scaling: BenchScaling) -> Markup:
    """Draw the measured points with their intervals, the fit of each law, and the band of the chosen fit."""
    counts = sorted({*(each.count for each in scaling.measured), *(each.count for each in scaling.projected)})
    largest, chosen = scaling.largest, scaling.chosen.fit.law
    x = scale_of([counts[0], counts[-1]], LEFT + 24, RIGHT - 24)
    along = _along(x, counts[0], counts[-1])
    curve = scaling.band(along)
    y = _height(scaling, curve)
    border = x(largest)
    band = _band(curve, x, y)
    width = coordinate(RIGHT - border)
    drawn: list[Child] = [
        el("rect", x=coordinate(border), y=TOP, width=width, height=BOTTOM - TOP, class_="panel"),
        axes(x, y, scaling.of, scaling.units, counts),
        el("path", d=band, class_=f"area band-of-law {_MARKS[chosen]}") if band else None,
        el("path", d=f"M{coordinate(border)},{TOP}V{BOTTOM}", class_="limit"),
        label(border - 6, TOP + 12, "◀ measured", "halo whole", "end"),
        label(border + 6, TOP + 12, "projected ▶", "halo whole") if border < RIGHT - 90 else None,
    ]
    fits = [each.fit for each in scaling.chosen.candidates if each.fit is not None]
    for fit in fits:
        kind = f"line law {'' if fit.law == chosen else 'thin '}{_MARKS[fit.law]}"
        drawn.append(el("path", el("title", fit.law), d=_line(fit, along, x, y), class_=kind))
    drawn += [_point(scaling, each, x, y) for each in scaling.measured]
    sign = {"measured": _POINTS}
    sign |= {f"{fit.law} (chosen)" if fit.law == chosen else fit.law: _MARKS[fit.law] for fit in fits}
    describe = [f"measured on {each.count} {scaling.of}: {format_number(each.value)}" for each in scaling.measured]
    describe += [f"projected to {each.count:g}: {format_number(each.centre)}" for each in scaling.projected]
    laws = " or ".join(fit.law for fit in scaling.chosen.possible)
    drawing = svg(f"{scaling.bench} against {scaling.of}", "; ".join(describe)[:4000], WIDTH, BOTTOM + 44, *drawn)
    return figure(
        f"{scaling.bench}: {scaling.units} against {scaling.of}",
        [plot_legend(sign), drawing],
        "Points were measured. Bars: 95 % intervals over repeats, from three on. Values right of the dashed line are projected. "
        + (
            f"The band is the 95 % interval of a repeat by {laws}."
            if band
            else "There is no band: there is no interval."
        ),
    )


def _along(x: Scale, low: float, high: float) -> list[float]:
    """Return counts from low to high, evenly spaced on their axis. Fractions of a node have a place on a curve only."""
    if x.is_log:
        return [*(low * (high / low) ** (step / _STEPS) for step in range(_STEPS)), high]
    return [*(low + (high - low) * step / _STEPS for step in range(_STEPS)), high]


def _height(scaling: BenchScaling, curve: Sequence[Projected]) -> Scale:
    """Return the scale of the values, from zero to where the chosen law, its band and the measured intervals end."""
    centres = [*(each.value for each in scaling.measured), *(each.centre for each in curve)]
    intervals = [*(each.interval for each in scaling.measured), *(each.prediction for each in curve)]
    reach = _MOST_REACH * max(centres)
    ends = [min(reach, interval[1]) for interval in intervals if interval is not None]
    return Scale(low=0, high=axis_end(max([*centres, *ends])), start=BOTTOM, stop=TOP)


def _line(fit: ScalingFit, along: Sequence[float], x: Scale, y: Scale) -> str:
    """Return the path of a law, as far as it is on the drawing."""
    values = [(count, fit.at(count)) for count in along]
    places = [f"{coordinate(x(count))},{coordinate(y(value))}" for count, value in values if y.holds(value)]
    return "M" + "L".join(places) if places else ""


def _band(curve: Sequence[Projected], x: Scale, y: Scale) -> str:
    ends = [(each.count, *each.prediction) for each in curve if each.prediction is not None]
    around = [(count, high) for count, _, high in ends] + [(count, low) for count, low, _ in reversed(ends)]
    return "M" + "L".join(f"{coordinate(x(count))},{coordinate(y(end))}" for count, end in around) + "z" if ends else ""


def _point(scaling: BenchScaling, measured: MeasuredCount, x: Scale, y: Scale) -> Markup:
    at_x = x(measured.count)
    value = f"{format_number(measured.value)} {scaling.units} {texts.bounds_text(measured.interval)}".rstrip()
    bar = interval_path(measured.interval, y, at_x, is_upright=True)
    return el(
        "g",
        el("title", f"measured on {measured.count} {scaling.of}: {value}"),
        el("path", d=bar, class_="whisker") if bar else None,
        el("g", marker(_POINTS, at_x, y(measured.value)), class_=f"dots point {_POINTS}"),
    )
