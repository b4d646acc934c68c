"""A report as a value: its content and order, before a format writes it.

`report/text.py` and `report/markdown.py` each write every kind of block; a document knows no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns under their headings; `is_text` says which of them are text, set to the left."""

    headings: tuple[str, ...]
    is_text: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """What the report is about; `label` stands before it where a format has no headings."""

    text: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """Names and values, one pair per line, the values aligned."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sentence that a reader must not miss."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One named value on a line of its own."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Lines of small print; `name` stands before each of them."""

    lines: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A named item with its text; `details` are paths and commands by their labels, to be copied."""

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


def section(title: str, pairs: Sequence[tuple[str, str]]) -> tuple[Section, ...]:
    """Return a section of these names and texts; empty when there are none."""
    return (Section(title=title, entries=tuple(Entry(name=name, text=text) for name, text in pairs)),) if pairs else ()


def notes(lines: Sequence[str], name: str = "") -> tuple[Notes, ...]:
    """Return the notes; empty when there are none."""
    return (Notes(lines=tuple(lines), name=name),) if lines else ()
