"""A summary as plain text of fixed width, for a terminal or a file."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis.summary import Summary
from orchestrator.report import model


def render(summaries: Sequence[Summary]) -> str:
    """The reports of some runs, one after the other."""
    return "\n\n".join("\n".join(_lines(summary)) for summary in summaries) + "\n"


def _lines(summary: Summary) -> list[str]:
    lines = [*_pairs(model.system_lines(summary))]
    if not summary.is_ended:
        lines += ["", "this run was cut off, or is still going: what follows is what is known"]
    headings = [column.heading for column in model.COLUMNS]
    is_text = [column.is_text for column in model.COLUMNS]
    lines += ["", *table(headings, model.cells(summary.benchmarks), is_text), ""]
    lines += [f"score: {model.score_line(summary)}", "", *model.LEGEND]
    failures = model.failures(summary)
    if failures:
        lines += ["", "failures"]
    for bench, failure in failures:
        lines.append(f"  {failure.step}: {model.reason(failure)}")
        if failure.log:
            lines.append(f"    log    {failure.log}")
        lines.append(f"    rerun  {model.rerun_line(summary, bench.bench)}")
    flaky = model.flaky(summary)
    if flaky:
        lines += ["", "flaky"]
    for step, text, log in flaky:
        lines += [f"  {step}: {text}", *([f"    log    {log}"] if log else [])]
    for heading, entries in (
        ("skipped", model.skips(summary)),
        ("validations", model.validations(summary)),
        ("messages", model.messages(summary)),
    ):
        if entries:
            lines += ["", heading, *(f"  {name}: {text}" for name, text in entries)]
    metrics = model.other_metrics(summary)
    if metrics:
        rows = table(["bench", "metric", "median", "units", "n"], metrics, [True, True, False, True, False])
        lines += ["", "other metrics", *(f"  {row}" for row in rows)]
    return lines


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool]) -> list[str]:
    """A heading, a rule and the rows, in columns as wide as they must be; text to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(cells, widths, is_text, strict=True)
        )
        return " | ".join(padded).rstrip()

    rule = "-+-".join("-" * width for width in widths)
    return [line(headings), rule, *map(line, rows)]


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in pairs) + 2
    return [f"{name:<{width}}{value}" for name, value in pairs]
