"""Reports as plain text of fixed width, for a terminal or a file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import assert_never

from milabench.report.document import Block, Document, Entry, Notes, Properties, Section, Statement, Table, Title, Value
from milabench.report.document_renderer import DocumentRenderer
from milabench.shown import cut_text, visible_line

WIDTH = 120
LONGEST = 40  # characters of a value in a table that does not fit
NAMED = 4  # columns that the line below such a table names


def document_text(document: Document, width: int | None = None) -> str:
    """Return the blocks with an empty line between them; a title stands right above its properties.

    `width` is that of the terminal which tables are fitted to; None: they are written whole.
    """
    lines: list[str] = []
    previous: Block | None = None
    for block in document:
        is_headline = isinstance(previous, Title) and previous.label != "" and isinstance(block, Properties)
        lines += [
            *([""] if previous is not None and not is_headline else []),
            *map(visible_line, _lines(block, document, width)),
        ]
        previous = block
    return "\n".join(lines) + "\n"


def _lines(block: Block, document: Document, width: int | None) -> Iterable[str]:
    match block:
        case Title():
            return [f"{block.label:<{_name_width(document)}}{block.text}" if block.label else block.text]
        case Properties():
            return [f"{name:<{_name_width(document)}}{text}" for name, text in block.pairs]
        case Statement():
            return _wrapped(block.text, width)
        case Value():
            return [f"{block.name}: {block.text}"]
        case Notes():
            if block.name:  # commands stay whole, too
                return [f"{block.name}: {line}" for line in block.lines]
            return [part for line in block.lines for part in _wrapped(line, width)]
        case Section():
            return [block.title, *(line for entry in block.entries for line in _entry_lines(entry))]
        case Table():
            table = text_table(block.headings, block.rows, block.is_text, spare=block.spare, width=width)
            return [*([block.title] if block.title else []), *table]
        case _:
            assert_never(block)


def _wrapped(text: str, width: int | None) -> list[str]:
    # Names and paths stay whole: they are copied from here.
    return textwrap.wrap(text, min(WIDTH, width or WIDTH), break_long_words=False, break_on_hyphens=False)


def _name_width(document: Document) -> int:
    """Return the width of the column of names that the title and the properties of a document share."""
    names = [name for block in document if isinstance(block, Properties) for name, _ in block.pairs]
    labels = [block.label for block in document if isinstance(block, Title)]
    return max(map(len, [*names, *labels])) + 2


def _entry_lines(entry: Entry) -> list[str]:
    width = max((len(label) for label, _ in entry.details), default=0) + 2
    name = f"{entry.name}: " if entry.name else ""
    return [f"  {name}{entry.text}", *(f"    {label:<{width}}{text}" for label, text in entry.details)]


def text_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    is_text: Sequence[bool],
    *,
    spare: Iterable[str] = (),
    width: int | None = None,
) -> list[str]:
    """Return heading, rule and rows in columns of minimal width; text to the left, numbers to the right.

    A table wider than the terminal's `width` is fitted to it: long values are shortened, then as many columns as need be
    are left out, those named first in `spare` first, and a last line says so. None: it is written whole.
    """
    columns = [tuple(column) for column in zip(headings, *rows, strict=True)]
    kept, note = _fitted(columns, tuple(spare), width)
    widths = {at: max(map(len, column)) for at, column in kept.items()}

    def line(row: int) -> str:
        padded = (
            column[row].ljust(widths[at]) if is_text[at] else column[row].rjust(widths[at])
            for at, column in kept.items()
        )
        return " | ".join(padded).rstrip()

    rule = "-+-".join("-" * wide for wide in widths.values())
    return [*map(visible_line, (line(0), rule, *map(line, range(1, len(rows) + 1)))), *note]


def _fitted(
    columns: Sequence[tuple[str, ...]], spare: Sequence[str], width: int | None
) -> tuple[dict[int, tuple[str, ...]], list[str]]:
    """Return the columns that fit by their place, and a line on what was shortened or left out."""
    kept = dict(enumerate(columns))

    def is_too_wide() -> bool:
        return width is not None and sum(max(map(len, column)) + 3 for column in kept.values()) - 3 > width

    if width is None or not is_too_wide():
        return kept, []
    # The first column says what a row is about, and is copied from here: it is cut at the terminal's edge only.
    kept = {
        at: tuple(cut_text(cell, LONGEST if at else width, at_word=False) for cell in column)
        for at, column in kept.items()
    }
    done = ["long values shortened"] if list(kept.values()) != list(columns) else []
    places = [at for heading in dict.fromkeys(spare) for at, column in kept.items() if at and column[0] == heading]
    left_out = []
    for at in places:
        if is_too_wide():
            left_out.append(kept.pop(at)[0])
    if left_out:
        names = ", ".join([*left_out[:NAMED], *(["..."] if len(left_out) > NAMED else [])])
        done.append(f"{len(left_out)} column{'s' * (len(left_out) > 1)} left out ({names})")
    return kept, [f"{'; '.join(done)}; --wide shows everything"] if done else []


_RENDERER = DocumentRenderer(write=document_text)
render, render_comparison = _RENDERER.render, _RENDERER.render_comparison
render_acceptance, fitted = _RENDERER.render_acceptance, _RENDERER.fitted
