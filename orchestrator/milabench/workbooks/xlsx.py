"""Reports and comparisons as a workbook (workbooks/workbook.py): values that a person will check are formulas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from milabench.analysis.comparison_model import Comparison
from milabench.analysis.summary_model import BenchSummary, Summary, validity_words
from milabench.report import csv
from milabench.report.columns import CSV_FIELDS, csv_rows
from milabench.report.model import ordered
from milabench.report.system_lines import system_lines
from milabench.workbooks.workbook import Cell, Formula, Sheet, sheet_names, workbook_bytes

_HEADS = (
    *("benchmark", "outcome", "validity", "units", "better", "weight", "rate of one", "instances", "all instances"),
    *("95 % low", "95 % high", "ratio to the reference", "counts", "weight ln ratio"),
)


def render(summaries: Sequence[Summary]) -> bytes:
    """Return the workbook: a sheet for each run, then all of their numbers as CSV has them. Raises UsageError."""
    names = sheet_names([summary.run or "run" for summary in summaries])
    sheets = [_sheet(name, summary) for name, summary in zip(names, summaries, strict=True)]
    (last,) = sheet_names([*names, "all numbers"])[-1:]
    return workbook_bytes([*sheets, _numbers(Sheet(name=last), CSV_FIELDS, csv_rows(summaries))])


def render_comparison(comparison: Comparison) -> bytes:
    """Return the comparison as a workbook: its results, then its numbers as in CSV. Raises UsageError."""
    sheet = Sheet(name="comparison")
    for line in (comparison.sentence, comparison.differs and f"differs: {comparison.differs}", *comparison.warnings):
        if line:
            sheet.add(line)
    sheet.add()
    return workbook_bytes([_numbers(sheet, *csv.comparison_rows(comparison))])


def _numbers(sheet: Sheet, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Sheet:
    sheet.add(*columns, is_head=True)
    for row in rows:
        sheet.add(*(row.get(column) for column in columns))
    return sheet


def _sheet(name: str, summary: Summary) -> Sheet:
    """Return a run's benchmarks with formulas for all instances' rates, and for the index over counted benchmarks."""
    sheet = Sheet(name=name)
    for label, text in system_lines(summary):
        sheet.add(label, text)
    sheet.add()
    sheet.add(*_HEADS, is_head=True)
    first = len(sheet.rows) + 1
    benches = ordered(summary.benchmarks)
    # As score.counted_entries: without any weight all count alike.
    is_weighted = any(bench.weight for bench in benches)
    for at, bench in enumerate(benches, start=first):
        sheet.add(*_row(bench, at, is_weighted=is_weighted))
    last, score = len(sheet.rows), summary.score
    sheet.add()
    if score.value is not None and score.reference and not score.is_compat:
        sums = f"SUM(N{first}:N{last})/SUM(M{first}:M{last})"
        sheet.add("index", Formula(text=f"EXP({sums})", value=score.value), f"reference: {score.reference}")
    return sheet


def _row(bench: BenchSummary, at: int, *, is_weighted: bool) -> tuple[Cell, ...]:
    low, high = bench.interval or (None, None)
    product = None if bench.perf is None else bench.perf * bench.instances
    whole: Cell = bench.score
    if bench.score is not None and product is not None and math.isclose(product, bench.score):
        whole = Formula(text=f"G{at}*H{at}", value=bench.score)
    counts, part = None, None
    if bench.ratio is not None:
        counts = (bench.weight or 0.0) if is_weighted else 1.0
        part = Formula(text=f"M{at}*LN(L{at})", value=counts * math.log(bench.ratio))
    return (
        *(
            bench.bench,
            bench.outcome,
            validity_words(bench.validity, bench.doubts, bench.uncertainty),
            bench.units,
            bench.direction,
        ),
        *(bench.weight, bench.perf, bench.instances, whole, low, high, bench.ratio, counts, part),
    )
