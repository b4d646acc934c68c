"""Reports as Markdown, for an issue, a pull request or a page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

from milabench.report.document import Block, Document, Entry, Notes, Properties, Section, Statement, Table, Title, Value
from milabench.report.document_renderer import DocumentRenderer
from milabench.shown import visible_line

# The end of a link's text; other brackets are those of intervals.
_LINK = re.compile(r"\](?=[(\[:])")


def document_markdown(document: Document) -> str:
    """Return the blocks with an empty line between them."""
    return "\n\n".join("\n".join(map(visible_line, _lines(block))) for block in document) + "\n"


def _lines(block: Block) -> Iterable[str]:
    match block:
        case Title():
            return [f"# {_escaped(block.text)}"]
        case Properties():
            return [f"- **{_escaped(name)}**: {_escaped(text)}" for name, text in block.pairs]
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
    details = (f"  - {label}: {_code(text)}" for label, text in entry.details)
    name = f"**{_escaped(entry.name)}**: " if entry.name else ""
    return [f"- {name}{_escaped(entry.text)}", *details]


def _table_lines(table: Table) -> list[str]:
    rule = [":---" if text else "---:" for text in table.is_text]
    rows = [[_escaped(cell) for cell in row] for row in (table.headings, *table.rows)]
    return [f"| {' | '.join(cells)} |" for cells in (rows[0], rule, *rows[1:])]


def _escaped(text: str) -> str:
    """Return the text on a single line, with all Markdown syntax escaped."""
    # The backslash first, or it would escape those of the others; & would make a character of its name.
    for sign in "\\`*_|<>&~":
        text = text.replace(sign, f"\\{sign}")
    text = _LINK.sub(r"\\]", text)
    return " ".join(text.split())


def _code(text: str) -> str:
    """Return the text to be copied: nothing in it is Markdown, and it holds no run of backticks as long as those around it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    if not longest:
        return f"`{text}`"
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"


_RENDERER = DocumentRenderer(write=document_markdown)
render, render_comparison = _RENDERER.render, _RENDERER.render_comparison
render_acceptance = _RENDERER.render_acceptance
