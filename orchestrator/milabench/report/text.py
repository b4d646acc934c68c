"""A summary as plain text of fixed width, for a terminal or a file."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from milabench.analysis.compare import Comparison
from milabench.analysis.summary_model import Summary
from milabench.analysis.system_diff import Difference
from milabench.report import comparison_text, model


def render(summaries: Sequence[Summary]) -> str:
    """The reports of some runs, one after the other."""
    return "\n\n".join("\n".join(_lines(summary)) for summary in summaries) + "\n"


def _lines(summary: Summary) -> list[str]:
    lines = [*_pairs(model.system_lines(summary))]
    if not summary.is_ended:
        lines += ["", "this run was cut off, or is still going: what follows is what is known"]
    shown = model.columns(summary.benchmarks)
    headings, is_text = [column.heading for column in shown], [column.is_text for column in shown]
    lines += ["", *text_table(headings, model.cells(summary.benchmarks), is_text), ""]
    lines += [f"score: {model.score_line(summary)}", "", *model.LEGEND]
    if summary.ab is not None:
        rows = text_table(model.PAIR_HEADINGS, model.pair_rows(summary.ab), model.PAIR_TEXT)
        lines += [
            "",
            *(f"{side}: {suite}" for side, suite in zip("AB", summary.ab.suites, strict=False)),
            *rows,
            "",
            model.PAIR_LEGEND,
        ]
    nodes = model.node_table(summary)
    if nodes is not None:
        lines += ["", "by node", *(f"  {row}" for row in text_table(*nodes, _name_and_units(nodes[0])))]
    failures = model.failure_entries(summary)
    if failures:
        lines += ["", "failures"]
    for bench, failure in failures:
        lines.append(f"  {failure.step}: {model.step_reason(failure)}")
        if failure.log:
            lines.append(f"    log    {failure.log}")
        lines.append(f"    rerun  {model.rerun_line(summary, bench.bench)}")
    flaky = model.flaky(summary)
    if flaky:
        lines += ["", "flaky"]
    for step, text, log in flaky:
        lines += [f"  {step}: {text}", *([f"    log    {log}"] if log else [])]
    for heading, entries in (
        ("replicates", model.replicate_lines(summary)),
        ("skipped", model.skips(summary)),
        ("validations", model.validations(summary)),
        ("messages", model.messages(summary)),
    ):
        if entries:
            lines += ["", heading, *(f"  {name}: {text}" for name, text in entries)]
    metrics = model.other_metrics(summary)
    if metrics:
        rows = text_table(["bench", "metric", "median", "units", "n"], metrics, [True, True, False, True, False])
        lines += ["", "other metrics", *(f"  {row}" for row in rows)]
    return lines


def render_comparison(comparison: Comparison, differences: Sequence[Difference] | None = None) -> str:
    """A comparison: the sentence, what failed and is left out, the index, the benchmarks; `differences` where asked for."""
    lines = [comparison_text.title(comparison), "", *_wrapped(comparison.sentence), ""]
    lines += [f"note: {warning}" for warning in comparison.warnings]
    for heading, entries in (
        ("failures", comparison_text.failed_entries(comparison)),
        ("excluded", comparison_text.exclusions(comparison)),
        ("suspect", comparison_text.suspects(comparison)),
    ):
        lines += ["", heading, *(f"  {name}: {text}" for name, text in entries)] if entries else []
    job = comparison_text.job_table(comparison)
    for found in (comparison_text.index_table(comparison), comparison_text.main_table(comparison), job):
        if found is not None:
            lines += ["", found.title, *text_table(found.headings, found.rows, found.is_text)]
    remarks = comparison_text.notes(comparison)
    lines += ["", *(f"{name}: {text}" for name, text in remarks)] if remarks else []
    if differences is not None:
        found = comparison_text.differences_table(comparison, differences)
        lines += ["", found.title, *text_table(found.headings, found.rows, found.is_text)]
    return "\n".join([*lines, "", *comparison_text.legend_lines(comparison)]) + "\n"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool]) -> list[str]:
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


def _name_and_units(headings: Sequence[str]) -> list[bool]:
    """Which columns of the table of nodes are text."""
    return [heading in ("bench", "units") for heading in headings]


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in pairs) + 2
    return [f"{name:<{width}}{value}" for name, value in pairs]
