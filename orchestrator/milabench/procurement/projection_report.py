"""Projections of measured counts as a document and as JSON. Projected values have their own table and keys."""

from __future__ import annotations

from collections.abc import Iterator

from milabench.analysis.intervals import Interval
from milabench.analysis.json_codec import picked, to_json_value
from milabench.analysis.summary_model import validity_words
from milabench.procurement.projection import FURTHEST, LAWS, LEVEL, Candidate, ScalingFit
from milabench.procurement.scaling_study import BenchScaling, MeasuredCount, ScalingStudy
from milabench.report.document import (
    Block,
    Document,
    Entry,
    Notes,
    Properties,
    Statement,
    Table,
    Title,
    Value,
    columns_table,
    section,
)
from milabench.report.labels import format_number
from milabench.shown import some_of

APART = "projected, measured by nobody"
"""The title of every table of projected values."""
_PARAMETERS = {"a": "contention a", "b": "coherence b", "g": "value of one g"}


def projection_document(study: ScalingStudy) -> Document:
    """Return the study as a document: each benchmark as measured, the laws through it, and separately the projections."""
    return (
        Title(text=projection_title(study)),
        Statement(text=projection_sentence(study)),
        *([Value(name="differs", text=study.differs)] if study.differs else []),
        *section("not projected", study.not_projected),
        *(block for scaling in study.benchmarks for block in _blocks(scaling, study)),
        Notes(lines=LEGEND),
    )


def _blocks(scaling: BenchScaling, study: ScalingStudy) -> Iterator[Block]:
    yield measured_table(scaling)
    yield from section(f"{scaling.bench}: left out", left_out_entries(scaling))
    yield laws_table(scaling)
    yield projected_table(scaling)
    yield Properties(pairs=tuple(remarks(scaling, study)))


LEGEND = (
    "efficiency: the value for each node or device, relative to the smallest count. Laws are fitted to a value for each count;"
    " the error is the root mean square of the relative errors with each count left out in turn, and the smallest is chosen."
    " Possible: not ruled out by an F test of these errors at 5 %; intervals are over all possible laws. A projected value is"
    " an expectation under a law: it enters no mean, score or comparison.",
)


def projection_title(study: ScalingStudy) -> str:
    """Return the title of a projection."""
    return f"projection of {some_of([scaling.bench for scaling in study.benchmarks], 3)}"


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
    return columns_table(
        f"{scaling.bench}: measured, {scaling.units}",
        scaling.measured,
        (f"#{scaling.of}", lambda each: each.count),
        ("#measured", lambda each: format_number(each.value)),
        ("#95 % interval", lambda each: bounds_text(each.interval)),
        ("#repeats", lambda each: len(each.side.values)),
        ("#efficiency", lambda each: None if (share := scaling.efficiency(each)) is None else f"{share:.1%}"),
        ("validity", lambda each: validity_words(each.side.validity, each.side.doubts)),
        ("runs", lambda each: ", ".join(each.runs)),
        spare=("runs", "repeats"),
    )


def laws_table(scaling: BenchScaling) -> Table:
    """Return a row for each law that was considered."""
    return columns_table(
        f"{scaling.bench}: laws",
        scaling.chosen.candidates,
        ("law", lambda each: each.law),
        ("formula", lambda each: LAWS[each.law].formula),
        ("#left-out error", lambda each: None if each.left_out_error is None else f"{each.left_out_error:.2%}"),
        ("standing", lambda each: standing(scaling, each)),
        ("parameters", lambda each: each.fit and "; ".join(parameter_texts(each.fit))),
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
        + (f" {bounds_text(interval)}" if (interval := fit.parameter_interval(name)) else "")
        for name, value in fit.parameters.items()
    ]


def projected_table(scaling: BenchScaling) -> Table:
    """Return a row for each count that is projected to."""
    return columns_table(
        f"{scaling.bench}: {APART}, {scaling.units}",
        scaling.projected,
        (f"#{scaling.of} (projected)", lambda each: f"{each.count:g}"),
        ("#times the largest measured", lambda each: f"{each.count / scaling.largest:.3g}"),
        (f"#by {scaling.chosen.fit.law}", lambda each: format_number(each.centre)),
        (f"#{LEVEL * 100:g} % interval, a repeat", lambda each: bounds_text(each.prediction)),
        (f"#{LEVEL * 100:g} % interval, the law", lambda each: bounds_text(each.confidence)),
        ("possible laws", lambda each: ", ".join(each.possible)),
        ("rests on", lambda each: None if is_within_reach(scaling, each.count) else "declared bound"),
        spare=("possible laws", "times the largest measured", "rests on"),
    ).without_empty(("rests on",))[0]


def is_within_reach(scaling: BenchScaling, count: float) -> bool:
    """Return whether a count may be projected to without a declared bound."""
    return count <= FURTHEST * scaling.largest


def remarks(scaling: BenchScaling, study: ScalingStudy) -> Iterator[tuple[str, str]]:
    """Yield the remarks on a projection: its test, its missing intervals, its end."""
    yield "back-test", back_test_text(scaling)
    if scaling.unsettled:
        counts, laws = len(scaling.measured), ", ".join(scaling.unsettled)
        yield (
            "unsettled",
            f"{counts} counts neither choose nor rule out {laws}, which no interval is over. Measure at more",
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
    interval = "no interval"
    if projected.prediction is not None:
        interval = f"{'within' if test.is_within else 'OUTSIDE'} its interval {bounds_text(projected.prediction)}"
    return (
        f"without {test.point.count:g}, {projected.law} projects {format_number(projected.centre)} there,"
        f" {projected.centre / value - 1:+.1%} of the measured {format_number(value)}, {interval}"
    )


def bounds_text(interval: Interval | None) -> str:
    """Return `[low, high]`. Empty without an interval."""
    return "" if interval is None else f"[{format_number(interval[0])}, {format_number(interval[1])}]"


def projection_to_json(study: ScalingStudy) -> dict[str, object]:
    """Return the study for programs, without its schema."""
    return {
        "level": LEVEL,
        **picked(study, "bound", "differs"),
        "benchmarks": [_scaling_json(scaling) for scaling in study.benchmarks],
        "not_projected": [{"bench": bench, "why": why} for bench, why in study.not_projected],
    }


def _scaling_json(scaling: BenchScaling) -> dict[str, object]:
    test = scaling.held_out
    return {
        **picked(scaling, "bench", "of", "units", "direction"),
        "is_inverse": scaling.measured[0].is_inverse,
        "measured": [_measured_json(scaling, each) for each in scaling.measured],
        "left_out": [{"count": count, "why": why} for count, why in scaling.left_out],
        "laws": [_law_json(scaling, candidate) for candidate in scaling.chosen.candidates],
        "unsettled_laws": list(scaling.unsettled),
        "projected": [
            {**to_json_value(each), "rests_on_bound": not is_within_reach(scaling, each.count)}
            for each in scaling.projected
        ],
        "back_test": {"why_not": scaling.why_no_back_test}
        if test is None
        else {
            **picked(test, held_out="point.count", measured_value="point.value"),
            **picked(test.projected, "law", projected_value="centre", prediction_interval="prediction"),
            "is_within": test.is_within,
        },
    }


def _measured_json(scaling: BenchScaling, measured: MeasuredCount) -> dict[str, object]:
    return {
        **picked(measured, "count", nodes="side.nodes", devices="side.devices"),
        **picked(measured, value="value", ci95="interval", values="values", runs="runs"),
        "efficiency": scaling.efficiency(measured),
        **picked(measured, validity="side.validity", reasons="side.doubts"),
    }


def _law_json(scaling: BenchScaling, candidate: Candidate) -> dict[str, object]:
    fit = candidate.fit
    return {
        "law": candidate.law,
        "formula": LAWS[candidate.law].formula,
        "standing": standing(scaling, candidate).partition(":")[0],
        **picked(candidate, "why_not", "left_out_error"),
        "parameters": {}
        if fit is None
        else {name: {"value": fit.parameters[name], "ci95": fit.parameter_interval(name)} for name in fit.parameters},
    }
