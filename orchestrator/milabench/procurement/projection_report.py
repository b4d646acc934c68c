"""Projections of measured counts in the formats that can hold projected values apart: text, Markdown, JSON, a page."""

from __future__ import annotations

from milabench.analysis.json_codec import picked, to_json_value
from milabench.procurement.document_formats import write_document
from milabench.procurement.projection import LAWS, LEVEL, Candidate
from milabench.procurement.projection_text import is_within_reach, projection_document, standing
from milabench.procurement.scaling_study import BenchScaling, MeasuredCount, ScalingStudy


def render_projection(study: ScalingStudy, format_name: str, width: int | None = None) -> str:
    """Return the study in a format. In text, its tables fit a terminal of `width` characters.

    Raises UsageError for other formats: in a list of rates or of test results nothing would stand apart.
    """
    if format_name == "html":
        # The page takes longer to import than text takes to write.
        from milabench.procurement.projection_page import projection_page

        return projection_page(study)
    return write_document(format_name, projection_document(study), {"projection": _study_json(study)}, width)


def _study_json(study: ScalingStudy) -> dict[str, object]:
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
            "held_out": test.point.count,
            "measured_value": test.point.value,
            "law": test.projected.law,
            "projected_value": test.projected.centre,
            "prediction_interval": test.projected.prediction,
            "is_within": test.is_within,
        },
    }


def _measured_json(scaling: BenchScaling, measured: MeasuredCount) -> dict[str, object]:
    side = measured.side
    return {
        "count": measured.count,
        **picked(side, "nodes", "devices"),
        "value": measured.value,
        "ci95": measured.interval,
        **picked(measured, "values", "runs"),
        "efficiency": scaling.efficiency(measured),
        "validity": side.validity,
        "reasons": side.doubts,
    }


def _law_json(scaling: BenchScaling, candidate: Candidate) -> dict[str, object]:
    fit = candidate.fit
    return {
        "law": candidate.law,
        "formula": LAWS[candidate.law].formula,
        "standing": standing(scaling, candidate).partition(":")[0],
        "why_not": candidate.why_not,
        "left_out_error": candidate.left_out_error,
        "parameters": {}
        if fit is None
        else {name: {"value": fit.parameters[name], "ci95": fit.parameter_interval(name)} for name in fit.parameters},
    }
