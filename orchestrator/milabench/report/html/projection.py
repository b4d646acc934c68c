"""The page of a projection: measured points with their intervals, the laws through them, and beyond these what is projected."""

from __future__ import annotations

from milabench.procurement.projection import LAWS
from milabench.procurement.scaling_study import BenchScaling, ScalingStudy
from milabench.report import projection as texts
from milabench.report.html.axis import Scale, coordinate
from milabench.report.html.markup import Child, Markup, badge, el, html_table, note
from milabench.report.html.page import alert, article, document, tile
from milabench.report.html.plots import WIDTH, figure, label, marker, plot_legend, svg
from milabench.report.html.xy_axes import BOTTOM, LEFT, RIGHT, TOP, axes, axis_end, interval_path, scale_of
from milabench.report.model import format_number

_STEPS = 80  # of a curve
_MOST_REACH = 1.6  # times the largest value: the axis ends there, however wide the band is
_MARKS = dict(zip(LAWS, "abcd", strict=True))
_POINTS = "e"


def projection_page(study: ScalingStudy) -> str:
    """Return the study as one page, with a section for each benchmark."""
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
    """Return the measured end beside the projected one, each called by what it is."""
    last, furthest = scaling.measured[-1], scaling.projected[-1]
    is_tested = scaling.held_out is not None and scaling.held_out.is_within and not scaling.unsettled
    interval = texts.interval_text(furthest.prediction)
    return tile(
        scaling.bench,
        f"{format_number(last.side.value)} {scaling.units}",
        f"measured on {last.count} {scaling.of}",
        f"projected to {furthest.count:g}: {format_number(furthest.centre)} {interval}",
        f"by {scaling.chosen.fit.law}",
        kind="good" if is_tested else "doubt",
    )


def _section(scaling: BenchScaling, study: ScalingStudy) -> Markup:
    projected = texts.projected_table(scaling, study)
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
    """Draw the measured points with their intervals, the fit of each law, and the band of the chosen one."""
    counts = [each.count for each in scaling.measured]
    furthest = max([float(counts[-1]), *(each.count for each in scaling.projected)])
    x = scale_of([counts[0], furthest], LEFT + 24, RIGHT - 24)
    along = _along(x, counts[0], furthest)
    band = [(each.count, each.prediction) for each in scaling.band(along) if each.prediction is not None]
    values = [each.side.value or 0.0 for each in scaling.measured]
    heights = [*values, *(each.centre for each in scaling.band(along))]
    reach = _MOST_REACH * max(heights)
    ends = [min(reach, end) for each in scaling.measured for end in each.side.ci95 or ()]
    y = Scale(
        low=0,
        high=axis_end(max([*heights, *ends, *(min(reach, high) for _, (_, high) in band)])),
        start=BOTTOM,
        stop=TOP,
    )
    border = x(counts[-1])
    fits = {each.law: each.fit for each in scaling.chosen.candidates if each.fit is not None}
    chosen = scaling.chosen.fit.law
    beside = label(border + 6, TOP + 12, "projected ▶", "halo whole") if border < RIGHT - 90 else None
    drawn: list[Child] = [
        el(
            "rect",
            x=coordinate(border),
            y=TOP,
            width=coordinate(RIGHT - border),
            height=BOTTOM - TOP,
            class_="panel",
        ),
        axes(x, y, scaling.of, scaling.units, sorted({*counts, *(each.count for each in scaling.projected)})),
        el("path", d=_band(band, x, y), class_=f"area band-of-law {_MARKS[chosen]}") if band else None,
        el("path", d=f"M{coordinate(border)},{TOP}V{BOTTOM}", class_="limit"),
        label(border - 6, TOP + 12, "◀ measured", "halo whole", "end"),
        beside,
    ]
    for law, fit in fits.items():
        drawn_part = [(count, value) for count in along if y.holds(value := fit.at(count))]
        path = "M" + "L".join(f"{coordinate(x(count))},{coordinate(y(value))}" for count, value in drawn_part)
        drawn.append(
            el("path", el("title", law), d=path, class_=f"line law {'' if law == chosen else 'thin '}{_MARKS[law]}")
        )
    for each in scaling.measured:
        at_x, at_y = x(each.count), y(each.side.value or 0.0)
        told = f"{format_number(each.side.value)} {scaling.units} {texts.interval_text(each.side.ci95)}".rstrip()
        bar = interval_path(each.side.ci95, y, at_x, is_upright=True)
        drawn.append(
            el(
                "g",
                el("title", f"measured on {each.count} {scaling.of}: {told}"),
                el("path", d=bar, class_="whisker") if bar else None,
                el("g", marker(_POINTS, at_x, at_y), class_=f"dots point {_POINTS}"),
            )
        )
    sign = {"measured": _POINTS} | {f"{law} (chosen)" if law == chosen else law: _MARKS[law] for law in fits}
    describe = "; ".join(
        f"measured on {each.count} {scaling.of}: {format_number(each.side.value)}" for each in scaling.measured
    ) + "".join(f"; projected to {each.count:g}: {format_number(each.centre)}" for each in scaling.projected)
    drawing = svg(f"{scaling.bench} against {scaling.of}", describe[:4000], WIDTH, BOTTOM + 44, *drawn)
    band_note = (
        f"The band is the 95 % interval of a launch by {' or '.join(fit.law for fit in scaling.chosen.possible)}."
    )
    return figure(
        f"{scaling.bench}: {scaling.units} against {scaling.of}",
        [plot_legend(sign), drawing],
        "Points were measured; bars are their 95 % intervals over launches, from 3 on. Right of the dashed line nobody measured. "
        + (band_note if band else "There is no band: the law has no interval."),
    )


def _along(x: Scale, low: float, high: float) -> list[float]:
    """Return counts from low to high, evenly spaced on their axis; fractions of a node have a place on a curve only."""
    if x.is_log:
        return [low * (high / low) ** (step / _STEPS) for step in range(_STEPS)] + [high]
    return [low + (high - low) * step / _STEPS for step in range(_STEPS)] + [high]


def _band(band: list[tuple[float, tuple[float, float]]], x: Scale, y: Scale) -> str:
    upper = [(count, high) for count, (_, high) in band]
    lower = [(count, low) for count, (low, _) in reversed(band)]
    points = [f"{coordinate(x(count))},{coordinate(y(end))}" for count, end in [*upper, *lower]]
    return "M" + "L".join(points) + "z"
