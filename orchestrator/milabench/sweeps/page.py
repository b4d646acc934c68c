"""Curves as sections of a page: drawings, tables and remarks."""

from __future__ import annotations

from milabench.analysis.comparison_model import Comparison
from milabench.analysis.summary_model import Summary
from milabench.pages.comparison import too_many, verdict_words
from milabench.pages.markup import Child, el, html_table, note
from milabench.pages.page import foldable
from milabench.report import model
from milabench.sweeps import compared_tables, tables
from milabench.sweeps.drawings import serving_figures


def curve_content(shown: Summary | Comparison) -> list[Child]:
    """Return the curves of a run, or the curves of a comparison over each other."""
    return _of_comparison(shown) if isinstance(shown, Comparison) else _of_run(shown)


def _of_run(summary: Summary) -> list[Child]:
    """Return each curve as drawings, its points, and its results."""
    children: list[Child] = []
    for bench in model.ordered(summary.benchmarks):
        if (curve := bench.serving) is None:
            continue
        remarks = [el("li", el("strong", names), ": ", text) for names, text in tables.point_remarks(curve)]
        points = tables.points_table(bench.bench, curve, first=("point", "SLO", "remarks"))
        states = ["misses the SLO" if point.meets_slo is False else point.state for point in curve.points]
        children += [
            el("h3", bench.bench),
            el("ul", [el("li", line) for line in tables.curve_lines(bench.bench, curve)], remarks),
            serving_figures([(bench.bench, curve)]),
            html_table(points, states=states) if curve.points else None,
            [
                foldable("All times", f"of {bench.bench}", html_table(table))
                for table in tables.times_tables(bench.bench, curve)
            ],
        ]
    return [*children, *map(note, tables.LEGEND)]


def _of_comparison(comparison: Comparison) -> list[Child]:
    """Return for each benchmark the curves over each other, their results, and the ratios point by point."""
    first, children = comparison.systems[0].name, list[Child]()
    for curves in comparison.curves:
        drawn = serving_figures([(drawn.name, drawn.curve) for drawn in curves.curves])
        remarks = [note(f"{what}: {why}") for what, why in compared_tables.curve_remarks(curves)]
        children += [
            el("h3", curves.bench),
            too_many(comparison) or drawn,
            html_table(compared_tables.curves_table(curves), can_filter=False),
        ]
        if curves.ratios:
            table = compared_tables.curve_ratio_table(curves, first, is_whole=True)
            shown = {len(table.headings) - 1: [verdict_words(ratio.contrast) for ratio in curves.ratios]}
            states = [ratio.contrast.verdict for ratio in curves.ratios]
            children.append(html_table(table, shown=shown, states=states))
        children += remarks
    return children
