"""Tables that a reader can sort and filter, and that are plain tables where no script runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milabench.report.document import Table
from milabench.report.html.markup import Child, Markup, el


def html_table(
    table: Table,
    *,
    shown: Mapping[int, Sequence[Child]] | None = None,
    states: Sequence[str] = (),
    can_filter: bool = True,
    is_alone: bool = False,
) -> Markup:
    """Return a table with its title as caption; with `is_alone` the caption is for screen readers only.

    `shown` are elements in place of the texts of some columns. `states` are words, one a row, by which rows can be chosen.
    """
    # By position, not by heading: a system may be called as a column is.
    columns = [(shown or {}).get(at, column) for at, column in enumerate(zip(*table.rows, strict=True))]
    kinds = [None if is_text else "num" for is_text in table.is_text]
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
            data_sort=len(body) > 1,
            data_filter=can_filter and len(body) > 1,
        ),
        class_="scroll",
        tabindex="0",
        role="group",
        aria_label=f"table, can be scrolled sideways: {table.title}",
    )


def pairs(entries: Sequence[tuple[Child, Child]]) -> Markup:
    """Return a definition list of names and values."""
    return el("dl", [el("div", el("dt", name), el("dd", text)) for name, text in entries])


def badge(text: str, kind: str) -> Markup:
    """Return a word with a sign: its meaning does not depend on its colour."""
    sign = {"good": "✓", "bad": "✕", "doubt": "?", "none": "–"}[kind]
    return el("span", el("span", sign, aria_hidden="true"), " ", text, class_=f"badge {kind}")
