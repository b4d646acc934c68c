"""Reports as plain text of fixed width, for a terminal or a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from milabench.report.document import Block, Document, Entry, Notes, Properties, Section, Statement, Table, Title, Value
from milabench.report.document_renderer import DocumentRenderer
from milabench.report.text_table import table_lines
from milabench.shown import visible_line, wrapped

WIDTH = 120


def document_text(document: Document, width: int | None = None) -> str:
    """Return the blocks with an empty line between them. A title stands right above its properties.

    `width` is the width of the terminal that tables are fitted to. None: they are written whole.
    """
    return "\n".join(document_lines(document, width)) + "\n"


def document_lines(document: Document, width: int | None = None) -> Iterator[str]:
    """Yield the lines of `document_text`."""
    previous: Block | None = None
    for block in document:
        is_headline = isinstance(previous, Title) and previous.label != "" and isinstance(block, Properties)
        if previous is not None and not is_headline:
            yield ""
        if isinstance(block, Table):
            if block.title:
                yield visible_line(block.title)
            yield from table_lines(block, width)
        else:
            yield from map(visible_line, _lines(block, document, width))
        previous = block


def _lines(
    block: Title | Properties | Statement | Value | Notes | Section, document: Document, width: int | None
) -> Iterable[str]:
    match block:
        case Title():
            return [f"{block.label:<{_name_width(document)}}{block.text}" if block.label else block.text]
        case Properties():
            return [f"{name:<{_name_width(document)}}{text}" for name, text in block.pairs]
        case Statement():
            return wrapped(block.text, width=_room(width))
        case Value():
            return [f"{block.name}: {block.text}"]
        case Notes():
            if block.name:  # commands stay whole, too
                return [f"{block.name}: {line}" for line in block.lines]
            return [part for line in block.lines for part in wrapped(line, width=_room(width))]
        case Section():
            return [block.title, *(line for entry in block.entries for line in _entry_lines(entry, width))]
        case _:
            assert_never(block)


def _room(width: int | None) -> int:
    """Return how many characters a line of prose has on a terminal of this width."""
    return min(WIDTH, width or WIDTH)


def _name_width(document: Document) -> int:
    """Return the width of the column of names that the title and the properties of a document share."""
    names = [name for block in document if isinstance(block, Properties) for name, _ in block.pairs]
    labels = [block.label for block in document if isinstance(block, Title)]
    return max(map(len, [*names, *labels])) + 2


def _entry_lines(entry: Entry, width: int | None) -> list[str]:
    """Return the lines of an entry. A path or a command in its details stays on a single line."""
    labels = max((len(label) for label, _ in entry.details), default=0) + 2
    name = f"{entry.name}: " if entry.name else ""
    lines = wrapped(visible_line(f"{name}{entry.text}"), "  ", _room(width), later="    ")
    return [*lines, *(f"    {label:<{labels}}{text}" for label, text in entry.details)]


_RENDERER = DocumentRenderer(write=document_text, lines=document_lines)
render, render_comparison = _RENDERER.render, _RENDERER.render_comparison
render_acceptance, fitted = _RENDERER.render_acceptance, _RENDERER.fitted
