"""Reports as Markdown, for an issue, a pull request or a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from milabench.acceptance.evaluate import Acceptance
from milabench.analysis.compare import Comparison
from milabench.analysis.summary_model import Summary
from milabench.analysis.system_diff import Difference
from milabench.analysis.traces import Trace
from milabench.report.acceptance_document import acceptance_document
from milabench.report.comparison_text import comparison_document
from milabench.report.document import (
    Block,
    Document,
    Entry,
    Notes,
    Properties,
    Section,
    Statement,
    Table,
    Title,
    Value,
)
from milabench.report.run_document import run_document


def render(summaries: Sequence[Summary], traces: Sequence[Sequence[Trace]] | None = None) -> str:
    """Return the reports on some runs, one after the other."""
    return "\n".join(document_markdown(run_document(summary)) for summary in summaries)


def render_comparison(
    comparison: Comparison,
    differences: Sequence[Difference] | None = None,
    traces: Sequence[Sequence[Trace] | None] | None = None,
) -> str:
    """Return a comparison; `differences` where they were asked for."""
    return document_markdown(comparison_document(comparison, differences))


def render_acceptance(acceptance: Acceptance) -> str:
    """Return the verdict on a run, criterion by criterion."""
    return document_markdown(acceptance_document(acceptance))


def document_markdown(document: Document) -> str:
    """Return the blocks with an empty line between them."""
    return "\n\n".join("\n".join(_lines(block)) for block in document) + "\n"


def _lines(block: Block) -> Iterable[str]:
    match block:
        case Title():
            return [f"# {_escaped(block.text)}"]
        case Properties():
            return [f"- **{name}**: {_escaped(text)}" for name, text in block.pairs]
        case Statement():
            return [f"**{_escaped(block.text)}**"]
        case Value():
            return [f"**{block.name.capitalize()}**: {_escaped(block.text)}"]
        case Notes():
            return [f"- {_escaped(f'{block.name}: {line}' if block.name else line)}" for line in block.lines]
        case Section():
            return [*_heading(block.title), *(line for entry in block.entries for line in _entry_lines(entry))]
        case Table():
            return [*_heading(block.title), *_table_lines(block)]
        case _:
            assert_never(block)


def _heading(title: str) -> list[str]:
    return [f"## {_escaped(title[0].upper() + title[1:])}", ""] if title else []


def _entry_lines(entry: Entry) -> list[str]:
    details = (f"  - {label}: `{text}`" for label, text in entry.details)
    return [f"- **{_escaped(entry.name)}**: {_escaped(entry.text)}", *details]


def _table_lines(table: Table) -> list[str]:
    rule = [":---" if text else "---:" for text in table.is_text]
    rows = [[_escaped(cell) for cell in row] for row in (table.headings, *table.rows)]
    return [f"| {' | '.join(cells)} |" for cells in (rows[0], rule, *rows[1:])]


def _escaped(text: str) -> str:
    """Return the text on one line, with nothing in it that Markdown would read as its own."""
    for sign in "\\`*_|<>":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
