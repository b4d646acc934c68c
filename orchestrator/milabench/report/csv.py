"""Comma-separated values: a row per run and benchmark, or benchmark and system, in full precision. Rows of curves come last."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from milabench.analysis.acceptance_model import Acceptance
from milabench.analysis.comparison_model import Comparison, ComparisonRow, Contrast, CurveRatio, SystemResult
from milabench.analysis.intervals import Interval
from milabench.analysis.json_codec import picked
from milabench.analysis.node_comparison import node_comparison
from milabench.analysis.serving_model import POINT_METRICS
from milabench.analysis.summary_model import Summary
from milabench.analysis.system_diff import Differences
from milabench.analysis.traces import RunTraces
from milabench.report import comparison_text
from milabench.report.columns import CSV_FIELDS, csv_rows
from milabench.report.model import ordered
from milabench.shown import csv_cell

OF_A_NODE = ("node", "x_first_node", "x_low", "x_high", "verdict")
OF_A_POINT = ("point", "metric", "meets_slo")


def render(summaries: Sequence[Summary], traces: RunTraces = None) -> str:
    """Return all runs in a single table. An unknown value is an empty field.

    Where there are curves, three more columns name the point and the metric of their numbers, which come last, and say whether
    the point meets the SLO.
    """
    of_points = [row for summary in summaries for row in _of_points(summary)]
    of_nodes = [row for summary in summaries for row in _of_nodes(summary)]
    fields = (*CSV_FIELDS, *(OF_A_POINT if of_points else ()), *(OF_A_NODE if of_nodes else ()))
    return csv_table(fields, [*csv_rows(summaries), *of_points, *of_nodes])


def _of_nodes(summary: Summary) -> Iterator[dict[str, Any]]:
    """Yield a row for each node of a benchmark that ran on several by itself."""
    for row in node_comparison(summary):
        for side, contrast in zip(row.sides, (None, *row.contrasts), strict=True):
            about = {
                **picked(summary, "run", "profile"),
                **picked(side, "outcome", "units", "direction", "validity"),
                **_bounds(side.ci95),
                "bench": row.bench,
                "processes": len(side.values),
                "perf": side.value,
                "node": side.system,
            }
            if contrast is not None:
                compared = {"x_first_node": contrast.ratio, "verdict": contrast.verdict}
                about |= {**compared, **_bounds(contrast.ci95, "x_low", "x_high")}
            yield about


def _bounds(interval: Interval | None, *names: str) -> dict[str, float]:
    """Return the ends of an interval by the names of their columns, which are empty without one."""
    return dict(zip(names or ("ci95_low", "ci95_high"), interval or (), strict=False))


def csv_table(fields: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return a table of these fields. A field that a row lacks is empty."""
    # csv ends lines with CR LF unless told otherwise, which diff and cut show as part of the last column.
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _of_points(summary: Summary) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of each point of a curve, or a row for a point without numbers."""
    curves = [(bench.bench, bench.serving) for bench in ordered(summary.benchmarks) if bench.serving is not None]
    for bench, curve in curves:
        for point in curve.points:
            about = {
                **picked(summary, "run", "profile", "capsule"),
                "bench": bench,
                "outcome": point.state,
                "failures": point.why,
                "reasons": "; ".join(point.notes),
                "point": point.name,
                "meets_slo": point.meets_slo,
            }
            for name in (name for name in POINT_METRICS if name in point.values):
                number = point.values[name]
                value = {"perf": number.value, **_bounds(number.ci95), "processes": len(number.launches)}
                units = curve.currency if name == "cost_per_mtok" else POINT_METRICS[name].units
                yield {**about, **value, "metric": name, "units": units, "direction": POINT_METRICS[name].direction}
            if not point.values:
                yield about


_OF_CONTRAST = (*("ratio", "p_holm", "verdict", "needed", "efficiency", "is_suspect", "note", "detectable"),)
CRITERIA = ("verdict", "bench", "criterion", "asked", "found", "missing", "value", "where")
COMPARED = (
    *("bench", "units", "direction", "weight", "first", "system", "first_value", "value", "first_n", "n"),
    *("ci95_low", "ci95_high", *_OF_CONTRAST),
    *("first_validity", "validity", "excluded", "first_sessions", "sessions", "weights_of"),
)


def render_comparison(comparison: Comparison, differences: Differences = None, traces: RunTraces = None) -> str:
    """Return a row for each benchmark and system but the first, then a row for each index. Differences are left out.

    Where there are curves, two more columns name the point and the metric of their ratios, which come last.
    """
    return csv_table(*comparison_rows(comparison))


def comparison_rows(comparison: Comparison) -> tuple[tuple[str, ...], list[dict[str, object]]]:
    """Return the columns and the rows of a comparison."""
    excluded = dict(comparison.excluded)
    rows = [
        {**_compared(row, side, contrast), "excluded": excluded.get(row.bench, "")}
        for row, side, contrast in comparison_text.ratios(comparison.rows)
    ]
    rows += [
        {
            "bench": "(index)",
            "first": comparison.systems[0].name,
            "ratio": index.value,
            **_bounds(index.ci95),
            **picked(index, "system", "verdict", "detectable", "weights_of"),
            "is_suspect": index.suspects > 0,
            "note": f"{index.complete[0]} of {index.complete[1]} benchmarks",
        }
        for index in comparison.indices
    ]
    rows += [
        _of_curve(curves.bench, comparison.systems[0].name, ratio)
        for curves in comparison.curves
        for ratio in curves.ratios
    ]
    return (*COMPARED, *(("point", "metric") if comparison.curves else ())), rows


def render_acceptance(acceptance: Acceptance) -> str:
    """Return a row for each criterion, in the order of the criteria file."""
    checks = [check.to_json() for check in acceptance.checks]
    return csv_table(CRITERIA, ({name: check[name] for name in CRITERIA} for check in checks))


def _of_curve(bench: str, first: str, ratio: CurveRatio) -> dict[str, object]:
    return {
        "bench": bench,
        "first": first,
        "first_value": ratio.first,
        "first_n": ratio.launches[0],
        "n": ratio.launches[1],
        "first_sessions": ratio.sessions[0],
        "sessions": ratio.sessions[1],
        **_bounds(ratio.contrast.ci95),
        "direction": POINT_METRICS[ratio.metric].direction if ratio.metric in POINT_METRICS else "higher",
        **picked(ratio, "system", "point", "metric", "units", "value"),
        **picked(ratio.contrast, *_OF_CONTRAST),
    }


def _compared(row: ComparisonRow, side: SystemResult, contrast: Contrast | None) -> dict[str, object]:
    first = row.sides[0]
    return {
        **picked(row, "bench", "units", "direction", "weight"),
        "first": first.system,
        "system": side.system,
        "first_value": first.value,
        "value": side.value,
        "first_n": len(first.values),
        "n": len(side.values),
        **({} if contrast is None else {**_bounds(contrast.ci95), **picked(contrast, *_OF_CONTRAST)}),
        "first_validity": first.validity,
        "validity": side.validity,
        "first_sessions": len(first.sessions),
        "sessions": len(side.sessions),
    }
