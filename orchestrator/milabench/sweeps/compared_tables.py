"""Curves of several systems as tables: a row for each curve, a ratio for each point, and why some have none."""

from __future__ import annotations

from milabench.analysis.comparison_model import CurveComparison, SystemCurve
from milabench.report.comparison_text import (
    interval_text,
    metric_label,
    p_text,
    ratio_text,
    sessions_text,
    verdict_text,
)
from milabench.report.document import Table, headed_table
from milabench.report.labels import format_number
from milabench.shown import grouped


def curves_table(curves: CurveComparison) -> Table:
    """Return a row for each curve of a benchmark: its client, its best point, how far it meets its SLO, its area."""
    columns = "system | client | #points | best point | #tokens/s | SLO kept at | #area (tokens/s)^2"
    rows = map(_curve_row, curves.curves)
    whole = headed_table(f"curves of {curves.bench}", columns, rows, spare=("client", "area (tokens/s)^2"))
    return whole.without_empty(("client",))[0]


def _curve_row(drawn: SystemCurve) -> tuple[str, ...]:
    curve = drawn.curve
    best = next((point for point in curve.points if point.name == curve.best), None)
    output = best.values.get("output_tps") if best is not None else None
    limits = (("concurrency", curve.slo_concurrency), ("rate", curve.slo_rate))
    kept = ", ".join(f"{name} {limit:g}" for name, limit in limits if limit is not None)
    return (
        drawn.name,
        f"{curve.client} {curve.version}".strip(),
        f"{sum(point.state == 'measured' for point in curve.points)}/{len(curve.points)}",
        curve.best or ("none meets the SLO" if curve.slo else ""),
        format_number(output.value if output is not None else None),
        (kept or "none") if curve.slo else "no SLO",
        format_number(curve.area.value if curve.area is not None else None),
    )


def curve_ratio_table(curves: CurveComparison, first: str, *, is_whole: bool = False) -> Table:
    """Return a row for each number of each point, with its value on the first system and on the other.

    `is_whole` repeats the name of the number, for readers that sort the rows.
    """
    rows = []
    named = ""
    for ratio in curves.ratios:
        label = metric_label(ratio.metric)
        rows.append(
            (
                label if is_whole or label != named else "",
                ratio.point,
                ratio.system if len({r.system for r in curves.ratios}) > 1 else "",
                ratio.units,
                format_number(ratio.first),
                format_number(ratio.value),
                "{}/{}".format(*ratio.launches),
                sessions_text(ratio.sessions),
                ratio_text(ratio.contrast.ratio),
                interval_text(ratio.contrast.ci95),
                p_text(ratio.contrast),
                verdict_text(ratio.contrast) + " ?" * ratio.contrast.is_suspect,
            )
        )
        named = label
    columns = (
        *(("what", True), ("point", True), ("system", True), ("units", True), (first, False), ("its value", False)),
        *(("repeats", False), ("sessions", False), ("ratio", False), ("95 % together", True), ("p (Holm)", False)),
        ("verdict", True),
    )
    headings, is_text = zip(*columns, strict=True)
    spare = ("p (Holm)", "repeats", "sessions", "units", "95 % together")
    title = f"curves of {curves.bench}: each point, then the area"
    whole = Table(title=title, headings=headings, is_text=is_text, rows=tuple(rows), spare=spare)
    return whole.without_empty(("system", "sessions"))[0]


def curve_remarks(curves: CurveComparison) -> list[tuple[str, str]]:
    """Return missing ratios and why, then the remarks on ratios, equal ones in a line."""
    alike = grouped((ratio.contrast.note, ratio) for ratio in curves.ratios if ratio.contrast.note)
    return [
        *curves.apart,
        *((f"{len(all_of)} of {len(curves.ratios)} ratios", note) for note, all_of in alike.items()),
    ]
