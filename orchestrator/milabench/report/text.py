"""Reports as plain text of fixed width, for a terminal or a file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import assert_never

from milabench.report.document import Block, Document, Entry, Notes, Properties, Section, Statement, Table, Title, Value
from milabench.report.document_renderer import DocumentRenderer
from milabench.shown import visible_line

WIDTH = 120


def document_text(document: Document) -> str:
    """Return the blocks with an empty line between them; a title stands right above its properties."""
    lines: list[str] = []
    previous: Block | None = None
    for block in document:
        is_headline = isinstance(previous, Title) and previous.label != "" and isinstance(block, Properties)
        lines += [
            *([""] if previous is not None and not is_headline else []),
            *map(visible_line, _lines(block, document)),
        ]
        previous = block
    return "\n".join(lines) + "\n"


def _lines(block: Block, document: Document) -> Iterable[str]:
    match block:
        case Title():
            return [f"{block.label:<{_name_width(document)}}{block.text}" if block.label else block.text]
        case Properties():
            return [f"{name:<{_name_width(document)}}{text}" for name, text in block.pairs]
        case Statement():
            # Names and paths stay whole: they are copied from here.
            return textwrap.wrap(block.text, WIDTH, break_long_words=False, break_on_hyphens=False)
        case Value():
            return [f"{block.name}: {block.text}"]
        case Notes():
            return [f"{block.name}: {line}" if block.name else line for line in block.lines]
        case Section():
            return [block.title, *(line for entry in block.entries for line in _entry_lines(entry))]
        case Table():
            return [*([block.title] if block.title else []), *text_table(block.headings, block.rows, block.is_text)]
        case _:
            assert_never(block)


def _name_width(document: Document) -> int:
    """Return the width of the column of names that the title and the properties of a document share."""
    names = [name for block in document if isinstance(block, Properties) for name, _ in block.pairs]
    labels = [block.label for block in document if isinstance(block, Title)]
    return max(map(len, [*names, *labels])) + 2


def _entry_lines(entry: Entry) -> list[str]:
    width = max((len(label) for label, _ in entry.details), default=0) + 2
    return [f"  {entry.name}: {entry.text}", *(f"    {label:<{width}}{text}" for label, text in entry.details)]


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool]) -> list[str]:
    """Return heading, rule and rows in columns of minimal width; text to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(cells, widths, is_text, strict=True)
        )
        return " | ".join(padded).rstrip()

    rule = "-+-".join("-" * width for width in widths)
    return [visible_line(text) for text in (line(headings), rule, *map(line, rows))]


_RENDERER = DocumentRenderer(write=document_text)
render, render_comparison = _RENDERER.render, _RENDERER.render_comparison
render_acceptance = _RENDERER.render_acceptance
