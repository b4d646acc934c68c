"""Tables that a reader can sort and filter, and that are plain tables where no script runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milabench.report.document import Table
from milabench.report.html.markup import Child, Markup, el


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a cell shows; `value` is what it is sorted by where its text does not say it, `kind` how it looks."""

    shown: Child
    value: float | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """The cells of a row, the first being its heading; `state` is a word by which rows can be chosen."""

    cells: tuple[Cell, ...]
    state: str = ""


def text_rows(rows: Sequence[Sequence[str]]) -> list[TableRow]:
    """Return rows of plain text."""
    return [TableRow(cells=tuple(Cell(shown=cell) for cell in row)) for row in rows]


def without_empty(
    headings: Sequence[str], is_text: Sequence[bool], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[bool], list[TableRow], list[str]]:
    """Drop empty columns; return headings, kinds, rows and the headings that were dropped."""
    kept = [column for column in range(len(headings)) if any(row[column] for row in rows)]
    empty = [heading for column, heading in enumerate(headings) if column not in kept]
    shown = text_rows([[row[column] for column in kept] for row in rows])
    return [headings[column] for column in kept], [is_text[column] for column in kept], shown, empty


def document_table(table: Table, *, can_filter: bool = True) -> Markup:
    """Return a table of a document, as the text formats have it."""
    return html_table(table.title, table.headings, table.is_text, text_rows(table.rows), can_filter=can_filter)


def html_table(
    caption: str,
    headings: Sequence[str],
    is_text: Sequence[bool],
    rows: Sequence[TableRow],
    *,
    can_filter: bool = True,
    is_alone: bool = False,
) -> Markup:
    """Return a table with its caption; with `is_alone` the caption is for screen readers only."""
    head = [
        el("th", heading, scope="col", class_=None if text else "num")
        for heading, text in zip(headings, is_text, strict=True)
    ]
    body = [el("tr", _cells(row, is_text), data_state=row.state or None) for row in rows]
    return el(
        "div",
        el(
            "table",
            el("caption", caption, class_="unseen" if is_alone else None),
            el("thead", el("tr", head)),
            el("tbody", body),
            data_sort=len(rows) > 1,
            data_filter=can_filter and len(rows) > 1,
        ),
        class_="scroll",
        tabindex="0",
        role="group",
        aria_label=f"table, can be scrolled sideways: {caption}",
    )


def _cells(row: TableRow, is_text: Sequence[bool]) -> list[Markup]:
    cells = []
    for position, (cell, text) in enumerate(zip(row.cells, is_text, strict=True)):
        kinds = " ".join(kind for kind in ("" if text else "num", cell.kind) if kind)
        value = None if cell.value is None else repr(cell.value)
        if position == 0:
            cells.append(el("th", cell.shown, scope="row", class_=kinds or None, data_v=value))
        else:
            cells.append(el("td", cell.shown, class_=kinds or None, data_v=value))
    return cells


def pairs(entries: Sequence[tuple[Child, Child]]) -> Markup:
    """Return a definition list of names and values."""
    return el("dl", [el("div", el("dt", name), el("dd", text)) for name, text in entries])


def badge(text: str, kind: str) -> Markup:
    """Return a word with a sign: its meaning does not depend on its colour."""
    sign = {"good": "✓", "bad": "✕", "doubt": "?", "none": "–"}[kind]
    return el("span", el("span", sign, aria_hidden="true"), " ", text, class_=f"badge {kind}")
