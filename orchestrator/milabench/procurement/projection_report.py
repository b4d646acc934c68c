"""Projections of measured counts in the formats that can hold projected values apart: text, Markdown, JSON, a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from milabench.analysis.summary_model import SCHEMA
from milabench.errors import UsageError
from milabench.events.values import strict
from milabench.procurement.projection import LAWS, Candidate, Projected
from milabench.procurement.projection_text import is_within_reach, projection_document, standing
from milabench.procurement.scaling_study import BenchScaling, MeasuredCount, ScalingStudy


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
    from milabench.procurement.projection_page import projection_page

    return projection_page(study)


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


def _scaling_json(scaling: BenchScaling) -> dict[str, object]:
    test = scaling.held_out
    return {
        "bench": scaling.bench,
        "of": scaling.of,
        "units": scaling.units,
        "direction": scaling.direction,
        "is_inverse": scaling.measured[0].is_inverse,
        "measured": [_measured_json(scaling, each) for each in scaling.measured],
        "left_out": [{"count": count, "why": why} for count, why in scaling.left_out],
        "laws": [_law_json(scaling, candidate) for candidate in scaling.chosen.candidates],
        "unsettled_laws": list(scaling.unsettled),
        "projected": [
            {**projected_to_json(each), "rests_on_bound": not is_within_reach(scaling, each.count)}
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


def projected_to_json(projected: Projected) -> dict[str, object]:
    """Return a projected value for programs: not `value`, so that no reader of measured values takes it for one."""
    return {
        "count": projected.count,
        "law": projected.law,
        "possible_laws": list(projected.possible),
        "projected_value": projected.centre,
        "prediction_interval": projected.prediction,
        "law_interval": projected.confidence,
        "why_no_interval": projected.why_no_interval,
        "largest_measured": projected.largest_measured,
    }


def _measured_json(scaling: BenchScaling, measured: MeasuredCount) -> dict[str, object]:
    side = measured.side
    return {
        "count": measured.count,
        "nodes": side.nodes,
        "devices": side.devices,
        "value": measured.value,
        "ci95": measured.interval,
        "values": measured.values,
        "runs": measured.runs,
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
