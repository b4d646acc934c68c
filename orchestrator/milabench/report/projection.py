"""Projections of measured counts as text, Markdown, JSON or a page. What was projected stands in a table of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from milabench.analysis.intervals import Interval
from milabench.analysis.json_codec import strict
from milabench.analysis.summary_model import SCHEMA, validity_words
from milabench.errors import UsageError
from milabench.procurement.projection import FURTHEST, LAWS, Candidate, ScalingFit
from milabench.report.document import Document, Entry, Notes, Properties, Statement, Table, Title, Value, section
from milabench.report.model import format_number

if TYPE_CHECKING:
    from milabench.procurement.scaling_study import BenchScaling, MeasuredCount, ScalingStudy

APART = "projected, measured by nobody"
"""What the title of every table of projected values says."""
_PARAMETERS = {"a": "contention a", "b": "coherence b", "g": "value of one g", "alpha": "alpha", "beta": "beta"}


def render_projection(study: ScalingStudy, format_name: str, width: int | None = None) -> str:
    """Return the study in a format; in text, its tables fit a terminal of so many characters.

    Raises UsageError for other formats: in a list of rates or of test results nothing would stand apart.
    """
    writers: Mapping[str, Callable[[], str]] = {
        "text": partial(_as_text, study, width),
        "markdown": partial(_as_markdown, study),
        "json": partial(_as_json, study),
        "html": partial(_as_page, study),
    }
    if format_name == "brief":
        format_name = "text"
    if format_name not in writers:
        raise UsageError(f"a projection has no format {format_name}; give --format {'|'.join(writers)}")
    return writers[format_name]()


def _as_text(study: ScalingStudy, width: int | None) -> str:
    from milabench.report.text import document_text

    return document_text(projection_document(study), width)


def _as_markdown(study: ScalingStudy) -> str:
    from milabench.report.markdown import document_markdown

    return document_markdown(projection_document(study))


def _as_page(study: ScalingStudy) -> str:
    from milabench.report.html.projection import projection_page

    return projection_page(study)


def projection_document(study: ScalingStudy) -> Document:
    """Return the study as a document: each benchmark as measured, the laws through it, and apart from these what is projected."""
    return (
        Title(text=projection_title(study)),
        Statement(text=projection_sentence(study)),
        *([Value(name="differs", text=study.differs)] if study.differs else []),
        *section("not projected", study.not_projected),
        *(block for scaling in study.benchmarks for block in _blocks(scaling, study)),
        Notes(lines=LEGEND),
    )


def _blocks(scaling: BenchScaling, study: ScalingStudy) -> Iterator[Any]:
    yield measured_table(scaling)
    yield from section(f"{scaling.bench}: left out", left_out_entries(scaling))
    yield laws_table(scaling)
    yield projected_table(scaling, study)
    yield Properties(pairs=tuple(remarks(scaling, study)))


LEGEND = (
    "efficiency: the value over that of the smallest count, for each node or device. Laws are fitted to one value for each count;"
    " the error is the root mean square of the relative errors with each count left out in turn, and the least is chosen."
    " Possible: not ruled out by an F test of these errors at 5 %; intervals are over all possible laws. A projected value is"
    " an expectation under a law: it enters no mean, score or comparison.",
)


def projection_title(study: ScalingStudy) -> str:
    """Return what is projected."""
    names = ", ".join(scaling.bench for scaling in study.benchmarks[:3])
    more = f" and {len(study.benchmarks) - 3} more" if len(study.benchmarks) > 3 else ""
    return f"projection of {names}{more}"


def projection_sentence(study: ScalingStudy) -> str:
    """Return how far anything is projected, and who answers for it beyond the usual."""
    if study.bound is not None:
        return f"declared bound: {study.bound.count:g}, {study.bound.why}"
    return f"no bound is declared: nothing beyond {FURTHEST} times the largest measured count"


def left_out_entries(scaling: BenchScaling) -> list[Entry]:
    """Return the counts that take no part, with why."""
    return [Entry(name=f"{count} {scaling.of}", text=why) for count, why in scaling.left_out]


def measured_table(scaling: BenchScaling) -> Table:
    """Return a row for each measured count."""
    rows = [
        (
            str(each.count),
            format_number(each.side.value),
            interval_text(each.side.ci95),
            str(len(each.side.values)),
            "" if (share := scaling.efficiency(each)) is None else f"{share:.1%}",
            validity_words(each.side.validity, each.side.reasons),
            ", ".join(each.runs),
        )
        for each in scaling.measured
    ]
    return Table(
        title=f"{scaling.bench}: measured, {scaling.units}",
        headings=(scaling.of, "measured", "95 % interval", "launches", "efficiency", "validity", "runs"),
        is_text=(False, False, False, False, False, True, True),
        rows=tuple(rows),
        spare=("runs", "launches"),
    )


def laws_table(scaling: BenchScaling) -> Table:
    """Return a row for each law that was considered."""
    rows = [
        (
            each.law,
            LAWS[each.law].formula,
            "" if each.left_out_error is None else f"{each.left_out_error:.2%}",
            standing(scaling, each),
            "" if each.fit is None else "; ".join(parameter_texts(each.fit)),
        )
        for each in scaling.chosen.candidates
    ]
    return Table(
        title=f"{scaling.bench}: laws",
        headings=("law", "formula", "left-out error", "standing", "parameters"),
        is_text=(True, True, False, True, True),
        rows=tuple(rows),
        spare=("parameters", "formula"),
    )


def standing(scaling: BenchScaling, candidate: Candidate) -> str:
    """Return whether a law is chosen, possible or ruled out, or why it is not considered."""
    if candidate.law == scaling.chosen.fit.law:
        return "chosen"
    if candidate.why_not:
        return f"not considered: {candidate.why_not}"
    return "possible" if candidate.law in [fit.law for fit in scaling.chosen.possible] else "ruled out"


def parameter_texts(fit: ScalingFit) -> list[str]:
    """Return the parameters with their intervals, where they have some."""
    return [
        f"{_PARAMETERS[name]} = {value:.4g}"
        + (f" {interval_text(interval)}" if (interval := fit.parameter_interval(name)) else "")
        for name, value in fit.parameters.items()
    ]


def projected_table(scaling: BenchScaling, study: ScalingStudy) -> Table:
    """Return a row for each count that is projected to."""
    rows = [
        (
            f"{each.count:g}",
            f"{each.count / scaling.largest:.3g}",
            format_number(each.centre),
            interval_text(each.prediction),
            interval_text(each.confidence),
            ", ".join(each.possible),
            "" if is_within_reach(scaling, each.count) else "declared bound",
        )
        for each in scaling.projected
    ]
    return Table(
        title=f"{scaling.bench}: {APART}, {scaling.units}",
        headings=(
            f"{scaling.of} (projected)",
            "times the largest measured",
            f"by {scaling.chosen.fit.law}",
            f"{study.level * 100:g} % interval, a launch",
            f"{study.level * 100:g} % interval, the law",
            "possible laws",
            "rests on",
        ),
        is_text=(False, False, False, False, False, True, True),
        rows=tuple(rows),
        spare=("possible laws", "times the largest measured", "rests on"),
    ).without_empty(("rests on",))[0]


def is_within_reach(scaling: BenchScaling, count: float) -> bool:
    """Return whether a count may be projected to without a declared bound."""
    return count <= FURTHEST * scaling.largest


def remarks(scaling: BenchScaling, study: ScalingStudy) -> Iterator[tuple[str, str]]:
    """Yield what a reader must know of a projection: the test of it, its missing intervals, its end."""
    yield "back-test", back_test_text(scaling)
    if scaling.unsettled:
        counts, laws = len(scaling.measured), " and ".join(scaling.unsettled)
        yield (
            "unsettled",
            f"{counts} counts neither choose nor rule out {laws}, which no interval is over; measure at more",
        )
    without = next((each.why_no_interval for each in scaling.projected if each.prediction is None), "")
    if without:
        yield "no interval", without
    below = [f"{each.count:g}" for each in scaling.projected if each.prediction is not None and each.prediction[0] <= 0]
    if below:
        yield "interval", f"reaches below zero at {', '.join(below)}: too little was measured to project so far"
    fit, of, units = scaling.chosen.fit, scaling.of, scaling.units
    if fit.peak is not None:
        count, highest = fit.peak
        yield "peak", f"by {fit.law} {format_number(highest)} {units} at about {count:.4g} {of}, and less beyond"
    elif fit.limit is not None:
        yield "limit", f"by {fit.law} {format_number(fit.limit)} {units}, however many {of}"
    if study.bound is not None and any(not is_within_reach(scaling, each.count) for each in scaling.projected):
        yield "bound", f"{study.bound.count:g} {scaling.of}: {study.bound.why}"


def back_test_text(scaling: BenchScaling) -> str:
    """Return how a law chosen without the largest count did on it."""
    test = scaling.held_out
    if test is None:
        return f"none: {scaling.why_no_back_test}"
    projected, value = test.projected, test.point.value
    within = {True: "within", False: "OUTSIDE", None: "no"}[test.is_within]
    return (
        f"without {test.point.count:g}, {projected.law} projects {format_number(projected.centre)} there,"
        f" {projected.centre / value - 1:+.1%} of the measured {format_number(value)};"
        f" {within} its interval {interval_text(projected.prediction)}".rstrip()
    )


def interval_text(interval: Interval | None) -> str:
    """Return `[low, high]`; empty without one."""
    return "" if interval is None else f"[{format_number(interval[0])}, {format_number(interval[1])}]"


# ------------------------------------------------------------------------------------------------------------------ JSON


def _as_json(study: ScalingStudy) -> str:
    value = {
        "schema": SCHEMA,
        "projection": {
            "level": study.level,
            "bound": None if study.bound is None else {"count": study.bound.count, "why": study.bound.why},
            "differs": study.differs,
            "benchmarks": [_scaling_json(scaling) for scaling in study.benchmarks],
            "not_projected": [{"bench": bench, "why": why} for bench, why in study.not_projected],
        },
    }
    return json.dumps(strict(value), indent=2, allow_nan=False) + "\n"


def _scaling_json(scaling: BenchScaling) -> dict[str, Any]:
    test = scaling.held_out
    return {
        "bench": scaling.bench,
        "of": scaling.of,
        "units": scaling.units,
        "direction": scaling.direction,
        "measured": [_measured_json(scaling, each) for each in scaling.measured],
        "left_out": [{"count": count, "why": why} for count, why in scaling.left_out],
        "laws": [_law_json(scaling, candidate) for candidate in scaling.chosen.candidates],
        "unsettled_laws": list(scaling.unsettled),
        # Not `value`: no reader of measured values takes one of these by mistake.
        "projected": [
            {
                "count": each.count,
                "law": each.law,
                "possible_laws": list(each.possible),
                "projected_value": each.centre,
                "prediction_interval": each.prediction,
                "law_interval": each.confidence,
                "why_no_interval": each.why_no_interval,
                "largest_measured": each.largest_measured,
                "rests_on_bound": not is_within_reach(scaling, each.count),
            }
            for each in scaling.projected
        ],
        "back_test": {"why_not": scaling.why_no_back_test}
        if test is None
        else {
            "held_out": test.point.count,
            "measured_value": test.point.value,
            "law": test.projected.law,
            "projected_value": test.projected.centre,
            "prediction_interval": test.projected.prediction,
            "is_within": test.is_within,
        },
    }


def _measured_json(scaling: BenchScaling, measured: MeasuredCount) -> dict[str, Any]:
    side = measured.side
    return {
        "count": measured.count,
        "nodes": side.nodes,
        "devices": side.devices,
        "value": side.value,
        "ci95": side.ci95,
        "values": side.values,
        "runs": measured.runs,
        "efficiency": scaling.efficiency(measured),
        "validity": side.validity,
        "reasons": side.reasons,
    }


def _law_json(scaling: BenchScaling, candidate: Candidate) -> dict[str, Any]:
    fit = candidate.fit
    parameters: Sequence[str] = () if fit is None else tuple(fit.parameters)
    return {
        "law": candidate.law,
        "formula": LAWS[candidate.law].formula,
        "standing": standing(scaling, candidate).partition(":")[0],
        "why_not": candidate.why_not,
        "left_out_error": candidate.left_out_error,
        "parameters": {
            name: {"value": fit.parameters[name], "ci95": fit.parameter_interval(name)}
            for name in parameters
            if fit is not None
        },
    }
