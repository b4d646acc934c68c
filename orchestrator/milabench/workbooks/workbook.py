"""Workbooks (.xlsx): sheets of texts, numbers and formulas, each formula with the value that we computed for it."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from milabench.errors import UsageError
from milabench.shown import visible

# What Excel refuses in the name of a sheet or as one, and how long that may be.
_FORBIDDEN = re.compile(r"[\[\]:*?/\\]")
_RESERVED = "history"
_LONGEST_NAME = 31
_LONGEST_TEXT = 32767
_NARROWEST, _WIDEST = 12, 48
_CREATED = datetime(1980, 1, 1, tzinfo=UTC)  # as of entries of our archives: the same numbers give the same bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A formula without its equals sign, and its result. `value` None: no result."""

    text: str
    value: float | None


Cell = str | float | bool | Formula | None


@dataclass(slots=True)
class Sheet:
    """A sheet that grows row by row. `heads` are the numbers of the rows that are headings."""

    name: str
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    heads: set[int] = field(default_factory=set)

    def add(self, *cells: Cell, is_head: bool = False) -> int:
        """Append a row and return its number, which begins with 1."""
        self.rows.append(cells)
        if is_head:
            self.heads.add(len(self.rows))
        return len(self.rows)

    def refer(self, cell: str) -> str:
        """Return a cell or range of this sheet as formulas of others name it."""
        name = self.name.replace("'", "''")
        return f"'{name}'!{cell}"


def column(number: int) -> str:
    """Return the letters of a column, which begin with A for 0."""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def sheet_names(names: Iterable[str]) -> list[str]:
    """Return names that sheets may have, no two alike whatever their case."""
    taken: list[str] = []
    for number, name in enumerate(names, start=1):
        free = _FORBIDDEN.sub("_", visible(name)).strip("' ")[:_LONGEST_NAME].rstrip("' ") or str(number)
        if free.casefold() in (_RESERVED, *map(str.casefold, taken)):
            free = f"{free[: _LONGEST_NAME - len(str(number)) - 1]} {number}"
        taken.append(free)
    return taken


def workbook_bytes(sheets: Sequence[Sheet]) -> bytes:
    """Return the file. The same sheets give the same bytes. Raises UsageError without XlsxWriter."""
    try:
        import xlsxwriter
    except ImportError:
        raise UsageError(
            "workbooks need the package XlsxWriter. Install it with `pip install 'milabench[xlsx]'`"
        ) from None
    written = io.BytesIO()
    with xlsxwriter.Workbook(written, {"in_memory": True}) as book:
        book.set_properties({"created": _CREATED, "comments": "made by milabench"})
        bold = book.add_format({"bold": True, "text_wrap": True, "valign": "top"})
        for sheet in sheets:
            page = book.add_worksheet(sheet.name)
            for row_number, row in enumerate(sheet.rows):
                style = bold if row_number + 1 in sheet.heads else None
                for column, cell in enumerate(row):
                    _write(page, row_number, column, cell, style)
            for column, width in enumerate(_widths(sheet)):
                page.set_column(column, column, width)
    return written.getvalue()


def _write(page: Any, row_number: int, column: int, cell: Cell, style: Any) -> None:
    match cell:
        case None:
            return
        case Formula():
            page.write_formula(row_number, column, f"={cell.text}", style, "" if cell.value is None else cell.value)
        case bool():
            page.write_string(row_number, column, "yes" if cell else "no", style)
        case str():
            # Never as a formula or a link, whatever a record holds.
            page.write_string(row_number, column, visible(cell)[:_LONGEST_TEXT], style)
        case _ if math.isfinite(cell):
            page.write_number(row_number, column, cell, style)
        case _:
            page.write_string(row_number, column, str(cell), style)


def _widths(sheet: Sheet) -> list[int]:
    """Return how many characters wide each column is: as its longest text, within bounds."""
    widths: list[int] = []
    for row in sheet.rows:
        widths += [_NARROWEST] * (len(row) - len(widths))
        for at, cell in enumerate(row):
            if isinstance(cell, str):
                widths[at] = min(_WIDEST, max(widths[at], len(cell) + 1))
    return widths
