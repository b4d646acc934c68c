"""The report on one run as a document."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.analysis.paired_comparison import AB
from milabench.analysis.summary_model import Summary
from milabench.report import model
from milabench.report.document import (
    Document,
    Entry,
    Notes,
    Properties,
    Section,
    Statement,
    Table,
    Title,
    Value,
    section,
)

CUT_OFF = "this run is incomplete or still running: what follows is what is known"


def run_document(summary: Summary) -> Document:
    """Return the report as a document: system, benchmarks, score, then everything that explains them."""
    (label, run), *properties = model.system_lines(summary)
    columns = model.columns(summary.benchmarks)
    return (
        Title(text=run, label=label),
        Properties(pairs=tuple(properties)),
        *(() if summary.is_ended else (Statement(text=CUT_OFF),)),
        Table(
            headings=tuple(column.heading for column in columns),
            is_text=tuple(column.is_text for column in columns),
            rows=tuple(map(tuple, model.cells(summary.benchmarks))),
        ),
        Value(name="score", text=model.score_line(summary)),
        Notes(lines=model.LEGEND),
        *_ab_blocks(summary),
        *node_tables(summary),
        *_failures(summary),
        *_flaky(summary),
        *section("replicates", model.replicate_lines(summary)),
        *section("skipped", model.skips(summary)),
        *section("validations", model.validations(summary)),
        *section("messages", model.messages(summary)),
        *metric_tables(summary),
    )


def _ab_blocks(summary: Summary) -> Document:
    if summary.ab is None:
        return ()
    return (
        *section("A and B", list(zip("AB", summary.ab.suites, strict=False))),
        pair_table(summary.ab),
        Notes(lines=(model.PAIR_LEGEND,)),
    )


def pair_table(ab: AB, title: str = "") -> Table:
    """Return the pairs of an A/B run."""
    rows = tuple(map(tuple, model.pair_rows(ab)))
    return Table(title=title, headings=model.PAIR_HEADINGS, is_text=model.PAIR_TEXT, rows=rows)


def node_tables(summary: Summary) -> tuple[Table, ...]:
    """Return the rates on each node; empty for a run of one node."""
    return _table("by node", model.node_table(summary))


def metric_tables(summary: Summary) -> tuple[Table, ...]:
    """Return what was measured besides the rate; empty without other metrics."""
    return _table("other metrics", (["bench", "metric", "median", "units", "n"], model.other_metrics(summary)))


def _table(title: str, content: tuple[Sequence[str], Sequence[Sequence[str]]] | None) -> tuple[Table, ...]:
    """Return a table whose names and units are text; empty without rows."""
    if content is None or not content[1]:
        return ()
    headings, rows = content
    is_text = tuple(heading in ("bench", "metric", "units") for heading in headings)
    return (Table(title=title, headings=tuple(headings), is_text=is_text, rows=tuple(map(tuple, rows))),)


def _failures(summary: Summary) -> tuple[Section, ...]:
    entries = tuple(
        Entry(
            name=failure.step,
            text=model.step_reason(failure),
            details=(
                *((("log", failure.log),) if failure.log else ()),
                ("rerun", model.rerun_line(summary, bench.bench)),
            ),
        )
        for bench, failure in model.failure_entries(summary)
    )
    return (Section(title="failures", entries=entries),) if entries else ()


def _flaky(summary: Summary) -> tuple[Section, ...]:
    entries = tuple(
        Entry(name=step, text=text, details=(("log", log),) if log else ()) for step, text, log in model.flaky(summary)
    )
    return (Section(title="flaky", entries=entries),) if entries else ()
