"""A report as a value: its content and order, before a format writes it.

`report/text.py` and `report/markdown.py` each write every kind of block. A document knows no format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import itemgetter
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns under their headings. `is_text` says which of them are text, set to the left.

    `spare` are the headings of columns that a narrow terminal can do without, in the order in which they go.
    """

    headings: tuple[str, ...]
    is_text: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    spare: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many characters wide it is as text."""
        columns = zip(self.headings, *self.rows, strict=True)
        return sum(max(map(len, column)) + 3 for column in columns) - 3

    def without_empty(self, optional: Collection[str] | None = None) -> tuple[Table, list[str]]:
        """Return the table without its empty columns, or without the `optional` ones among them, and their headings."""
        empty = [
            heading
            for at, heading in enumerate(self.headings)
            if (optional is None or heading in optional) and not any(map(itemgetter(at), self.rows))
        ]
        return self.without(empty), empty

    def without(self, headings: Collection[str]) -> Table:
        """Return the table without the columns of these headings."""
        if not headings:
            return self
        stays = [heading not in headings for heading in self.headings]

        def kept(row: Iterable[T]) -> tuple[T, ...]:
            return tuple(compress(row, stays))

        return replace(self, headings=kept(self.headings), is_text=kept(self.is_text), rows=tuple(map(kept, self.rows)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """The subject of the report. `label` precedes it where a format has no headings."""

    text: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """Names and values, a pair per line, the values aligned."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sentence that a reader must not miss."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A named value on a line of its own."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Lines of small print. `name` stands before each of them."""

    lines: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An item with its name, if any, and its text. `details` are paths and commands by their labels, to be copied."""

    name: str
    text: str
    details: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Entries under a heading."""

    title: str
    entries: tuple[Entry, ...]


Block = Title | Properties | Statement | Value | Notes | Section | Table
Document = tuple[Block, ...]


def headed_table(title: str, columns: str, rows: Iterable[Iterable[str]], *, spare: Sequence[str] = ()) -> Table:
    """Return a table; `columns` are its headings with bars between them, a `#` before headings of numbers.

    For headings that we write: one from records may have a bar in it.
    """
    marked = [heading.strip() for heading in columns.split("|")]
    return Table(
        title=title,
        headings=tuple(heading.removeprefix("#") for heading in marked),
        is_text=tuple(not heading.startswith("#") for heading in marked),
        rows=tuple(map(tuple, rows)),
        spare=tuple(spare),
    )


def shown_tables(
    title: str, columns: str, rows: Iterable[Iterable[str]], *, spare: Sequence[str] = ()
) -> tuple[Table, ...]:
    """Return a table with the columns of `headed_table`, of which those with a `?` first are left out while they are empty.

    No table without rows.
    """
    marked = [heading.strip() for heading in columns.split("|")]
    optional = {heading.lstrip("?#") for heading in marked if heading.startswith("?")}
    table = headed_table(title, columns.replace("?", ""), rows, spare=spare)
    return (table.without_empty(optional)[0],) if table.rows else ()


def columns_table(
    title: str,
    items: Iterable[T],
    *columns: tuple[str, Callable[[T], object]],
    spare: Sequence[str] = (),
) -> Table:
    """Return a table with a row for each item. A column is its heading, a `#` before a heading of numbers, and its cells' value.

    None is an empty cell.
    """
    rows = [["" if (value := cell(item)) is None else str(value) for _, cell in columns] for item in items]
    return headed_table(title, "|".join(heading for heading, _ in columns), rows, spare=spare)


def words_table(title: str, headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table without numbers."""
    headings = tuple(headings)
    return Table(title=title, headings=headings, is_text=(True,) * len(headings), rows=tuple(map(tuple, rows)))


def section(title: str, entries: Iterable[Entry | tuple[str, str]]) -> tuple[Section, ...]:
    """Return a section of entries, or of names and texts. Empty when there are none."""
    listed = tuple(e if isinstance(e, Entry) else Entry(name=e[0], text=e[1]) for e in entries)
    return (Section(title=title, entries=listed),) if listed else ()


def notes(lines: Sequence[str], name: str = "") -> tuple[Notes, ...]:
    """Return the notes. Empty when there are none."""
    return (Notes(lines=tuple(lines), name=name),) if lines else ()
