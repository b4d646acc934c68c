"""Curves as blocks of a report: tables, results, remarks, and their legend."""

from __future__ import annotations

from milabench.analysis.comparison_model import Comparison, CurveComparison
from milabench.analysis.summary_model import Summary
from milabench.report.document import Document, Notes, section
from milabench.report.model import ordered
from milabench.sweeps.compared_tables import curve_ratio_table, curve_remarks, curves_table
from milabench.sweeps.tables import BRIEF_LEGEND, LEGEND, curve_lines, point_remarks, points_table, times_tables


def blocks_of_curves(shown: Summary | Comparison, *, is_brief: bool) -> Document:
    """Return the curves of a run, or of a comparison."""
    return _of_comparison(shown) if isinstance(shown, Comparison) else _of_run(shown, is_brief=is_brief)


def _of_run(summary: Summary, *, is_brief: bool) -> Document:
    """Return the curve of each benchmark that has a curve: its points, results and remarks."""
    blocks: list[Document] = []
    for bench in ordered(summary.benchmarks):
        if (curve := bench.serving) is not None:
            points = (points_table(bench.bench, curve, is_brief=is_brief),) if curve.points else ()
            times = () if is_brief else times_tables(bench.bench, curve)
            remarks = point_remarks(curve, has_notes=not is_brief)
            noted = section(f"remarks on the curve of {bench.bench}", remarks)
            blocks.append((*points, Notes(lines=curve_lines(bench.bench, curve)), *noted, *times))
    legend = Notes(lines=BRIEF_LEGEND if is_brief else LEGEND)
    return (*(block for of_bench in blocks for block in of_bench), legend) if blocks else ()


def _of_comparison(comparison: Comparison) -> Document:
    """Return the tables of each benchmark's curves, with the remarks on them."""
    first = comparison.systems[0].name
    return tuple(block for curves in comparison.curves for block in _curve_blocks(curves, first))


def _curve_blocks(curves: CurveComparison, first: str) -> Document:
    ratios = (curve_ratio_table(curves, first),) if curves.ratios else ()
    remarks = section(f"curves of {curves.bench}: remarks", curve_remarks(curves))
    return (curves_table(curves), *ratios, *remarks)
