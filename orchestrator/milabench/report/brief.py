"""The report that a terminal shows: a table that fits it, the warnings in words, and the next step."""

from __future__ import annotations

import re
from dataclasses import replace

from milabench.analysis.summary_model import Summary
from milabench.report import document, model
from milabench.report.columns import BENCH, HALF_WIDTH, PERF, UNITS, Column, table_of
from milabench.report.curves import curve_blocks
from milabench.report.decision_screens import acceptance_screen, comparison_screen
from milabench.report.document_renderer import DocumentRenderer, ab_blocks, ab_statement
from milabench.report.run_tables import compute_tables, expense_tables, launch_time_tables, milabench13_tables
from milabench.report.system_lines import system_lines
from milabench.report.text import document_lines, document_text
from milabench.shown import grouped

WIDTH = 100
"""Characters of a line that the table fits."""
# Of what a report says of a run and its machines.
_LEFT_OUT = ("profile", "created", "memory", "os", "software", "harness")
_COLUMNS_PAGE = "columns: docs/reference/reports.md"
# Where a sentence on a benchmark says what it is, before it says how.
_CLAUSE = re.compile(r"[:;,.(]\s")


def brief_document(summary: Summary) -> document.Document:
    """Return the facts that show whether the numbers are good enough, and the next command."""
    (label, run), *properties = system_lines(summary)
    profile = dict(properties)["profile"]
    kept = [pair for pair in properties if pair[0].partition(" (")[0] not in _LEFT_OUT]
    if not any(device.get("arch") != "cpu" for device in summary.devices):
        kept = [pair for pair in kept if not pair[0].startswith("devices")]  # the processor again
    table = _table(summary)
    return (
        *ab_statement(summary),
        document.Title(text=model.result_text(summary), label="result"),
        document.Properties(pairs=((label, f"{run}, profile {profile}"), *kept)),
        *(() if summary.is_ended else (model.INCOMPLETE,)),
        table,
        document.Notes(lines=(*_score(summary), _COLUMNS_PAGE)),
        *launch_time_tables(summary),
        *curve_blocks(summary, is_brief=True),
        *milabench13_tables(summary),
        *compute_tables(summary),
        *expense_tables([("", summary)]),
        *ab_blocks(summary, is_brief=True),
        *document.section(model.JOBS_TITLE, model.unfinished_jobs(summary)),
        *document.section("failures", model.grouped_failures(summary)),
        *document.section("flaky", model.flaky(summary)),
        *document.section("skipped", model.skips(summary)),
        *document.section("without a ratio to the reference", model.without_ratio(summary)),
        *document.section("repeats", model.replicate_lines(summary)),
        *document.section("warnings (`milabench report --full` shows every check)", doubts(summary)),
        *document.section("messages", model.grouped_messages(summary)),
        document.Notes(lines=(model.next_line(summary),), name="next"),
    )


def _score(summary: Summary) -> tuple[str, ...]:
    score, value = summary.score, model.shown_score(summary)
    if value is None or score.reference is None:
        return (f"score: {model.score_line(summary)}",)
    interval = "" if score.ci95 is None else f" [{score.ci95[0]:.2f}, {score.ci95[1]:.2f}]"
    weighted = "weighted" if score.is_weighted else "unweighted"  # geometric, as every mean of ratios here
    weights = f" by the weights of {score.weights_of}" if score.weights_of else ""
    return (
        f"score: {value:.2f}{interval} x reference, {weighted} mean{weights} over {model.coverage(summary)}",
        f"reference: {score.reference}",
    )


def _table(summary: Summary) -> document.Table:
    """Return the table: numbers, whether they can be trusted (why not is said below), and the workloads that they represent."""
    table = table_of(_COLUMNS, summary.benchmarks)
    abouts = {bench.bench: _CLAUSE.split(bench.about, maxsplit=1)[0] for bench in summary.benchmarks}
    if max(map(len, abouts.values()), default=0) > WIDTH - table.width - 3:
        return table
    about = Column("represents", lambda b: abouts[b.bench], is_text=True, is_optional=True, spare=1)
    return table_of([*_COLUMNS, about], summary.benchmarks)


def _word(text: str) -> str:
    """Return a validity without its reasons."""
    return re.sub(r" \(.*\)", "", text)


_COLUMNS = (
    BENCH,
    Column("fail", lambda bench: str(model.not_passed(bench) or ""), is_optional=True),
    Column("n", lambda bench: str(len(bench.processes)), spare=2),
    PERF,
    replace(HALF_WIDTH, is_optional=True),
    UNITS,
    Column("validity", lambda bench: _word(model.validity_text(bench)), is_text=True),
    Column("x reference", lambda bench: model.reference_ratio_text(bench, 2), is_optional=True),
)


def doubts(summary: Summary) -> list[tuple[str, str]]:
    """Return each warning about numbers once: the benchmarks, the text, and the repeat and step it is about."""
    warned = [
        (doubt, text, b.bench)
        for b in model.ordered(summary.benchmarks)
        for doubt, text in model.warnings_of(b, summary.profile).items()
    ]
    measured = sum(bench.perf is not None for bench in summary.benchmarks)
    return [
        (doubt, f"{'all benchmarks' if len(names) == measured > 1 else ', '.join(names)}: {text}")
        for (doubt, text), names in grouped(((doubt, text), name) for doubt, text, name in warned).items()
    ]


_RENDERER = DocumentRenderer(
    write=document_text,
    lines=document_lines,
    document=brief_document,
    comparison=comparison_screen,
    acceptance=acceptance_screen,
)
render, render_comparison = _RENDERER.render, _RENDERER.render_comparison
render_acceptance, fitted = _RENDERER.render_acceptance, _RENDERER.fitted
