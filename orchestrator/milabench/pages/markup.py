"""Elements of a page as strings: all other text is escaped, so that no name can inject an element."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from milabench.report.document import Table
from milabench.shown import visible

_EMPTY = frozenset({"meta", "link", "input", "br", "hr"})  # without an end in HTML
# Characters: a column of such texts does not wrap. Names of rows may be longer.
_BRIEF = 16
_BRIEF_NAME = 24
_DENSE = 13  # columns: so many fit a page of 1280 pixels only in small print
_SHAPES = frozenset({"path", "line", "rect", "circle", "use"})  # of SVG: closed where they begin

Child = object
"""An element, text, a number, None for nothing, or several of these."""


class Markup(str):
    """Text that is HTML, its parts escaped."""

    __slots__ = ()


def escaped_text(value: object) -> Markup:
    """Return a value as escaped text, with a sign for each character that a page cannot hold."""
    if isinstance(value, Markup):
        return value
    # Quotes too: attributes are escaped by the same function.
    return Markup(escape(visible(str(value)), quote=True))


def el(tag: str, /, *children: Child, **attributes: object) -> Markup:
    """Return an element. `class_` is `class`, `aria_label` is `aria-label`. An attribute that is None or False is left out."""
    content = "".join(
        _attribute(name, value) for name, value in attributes.items() if value is not None and value is not False
    )
    if tag in _EMPTY:
        return Markup(f"<{tag}{content}>")
    inner = "".join(_flat(children))
    if not inner and tag in _SHAPES:
        return Markup(f"<{tag}{content}/>")
    return Markup(f"<{tag}{content}>{inner}</{tag}>")


def prose(text: str) -> list[Child]:
    """Return a text, the commands and keys between its backticks as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return [text]
    return [el("code", piece, class_="command") if at % 2 else piece for at, piece in enumerate(pieces)]


def note(*text: Child) -> Markup:
    """Return small print."""
    shown = (prose(each) if isinstance(each, str) and not isinstance(each, Markup) else each for each in text)
    return el("p", *shown, class_="note")


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None or child is False:
            continue
        if isinstance(child, str) or not isinstance(child, Iterable):
            yield escaped_text(child)
        else:
            yield from _flat(child)


def _attribute(name: str, value: object) -> str:
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped_text(str(value))}"'


def html_table(
    table: Table,
    *,
    shown: Mapping[int, Sequence[Child]] | None = None,
    states: Sequence[str] = (),
    can_filter: bool = True,
    is_alone: bool = False,
) -> Markup:
    """Return a table with its title as caption. With `is_alone` the caption is for screen readers only.

    Columns that a narrow terminal leaves out are hidden on a narrow page. A column of short texts does not wrap. `shown`
    are elements in place of the texts of some columns. `states` are words, a word for each row, by which rows can be chosen.
    """
    # By position, not by heading: a system may be called as a column is.
    columns = [(shown or {}).get(at, column) for at, column in enumerate(zip(*table.rows, strict=True))]
    kinds = [_column_class(table, at) for at in range(len(table.headings))]
    head = [el("th", name, scope="col", class_=kind) for name, kind in zip(table.headings, kinds, strict=True)]
    body = []
    for at, (first, *cells) in enumerate(zip(*columns, strict=True)):
        heading = el("th", first, scope="row", class_=kinds[0])
        rest = [el("td", cell, class_=kind) for cell, kind in zip(cells, kinds[1:], strict=True)]
        body.append(el("tr", heading, rest, data_state=states[at] if states else None))
    return el(
        "div",
        el(
            "table",
            el("caption", table.title, class_="unseen" if is_alone else None),
            el("thead", el("tr", head)),
            el("tbody", body),
            class_="dense" if len(table.headings) >= _DENSE else None,
            data_sort=len(body) > 1,
            data_filter=can_filter and len(body) > 1,
        ),
        class_="scroll",
        # What scrolls must be reached from the keyboard too (WCAG 2.1.1); then it needs a role and a name.
        tabindex="0",
        role="group",
        aria_label=f"table, can be scrolled sideways: {table.title}",
    )


def _column_class(table: Table, at: int) -> str | None:
    """Return the classes of the cells of a column."""
    most = _BRIEF if at else _BRIEF_NAME
    is_brief = table.is_text[at] and all(len(row[at]) <= most for row in table.rows)
    kind = "brief" if is_brief else "" if table.is_text[at] else "num"
    return f"{kind} {'spare' if table.headings[at] in table.spare else ''}".strip() or None


def pairs(entries: Sequence[tuple[Child, Child]]) -> Markup:
    """Return a definition list of names and values."""
    return el("dl", [el("div", el("dt", name), el("dd", text)) for name, text in entries])


def badge(text: str, kind: str) -> Markup:
    """Return a word with a sign: its meaning does not depend on its colour."""
    sign = {"good": "✓", "bad": "✕", "doubt": "?", "none": "–"}[kind]
    return el("span", el("span", sign, aria_hidden="true"), "\u00a0", text, class_=f"badge {kind}")
