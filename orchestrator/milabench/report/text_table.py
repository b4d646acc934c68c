"""Tables fitted to a terminal. A separate module, because a command that prints a table needs no other part of reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from milabench.report.document import Table, headed_table
from milabench.shown import cut_text, visible_line

LONGEST = 40  # characters of a value in a table that does not fit
NAMED = 4  # columns that the line below such a table names


def text_table(
    columns: str, rows: Iterable[Iterable[str]], spare: Sequence[str] = (), width: int | None = None
) -> list[str]:
    """Return the lines of a table with the columns of `headed_table`."""
    return list(table_lines(headed_table("", columns, rows, spare=spare), width))


def table_lines(table: Table, width: int | None = None) -> Iterator[str]:
    """Yield heading, rule and rows in columns of minimal width. Text to the left, numbers to the right.

    A table wider than the terminal's `width` is fitted to it: long values are shortened, then as many columns as need be
    are left out, the spare ones in their order, and a last line says so. None: it is written whole.
    """
    columns = list(zip(table.headings, *table.rows, strict=True))
    kept, note = _fitted(columns, table.spare, width)
    widths = {at: max(map(len, column)) for at, column in kept.items()}

    template = " | ".join(f"%{'-' if table.is_text[at] else ''}{wide}s" for at, wide in widths.items())
    lines = ((template % row).rstrip() for row in zip(*kept.values(), strict=True))
    yield visible_line(next(lines, ""))
    yield "-+-".join("-" * wide for wide in widths.values())
    yield from map(visible_line, lines)
    yield from note


def _fitted(
    columns: Sequence[tuple[str, ...]], spare: Sequence[str], width: int | None
) -> tuple[dict[int, tuple[str, ...]], list[str]]:
    """Return the columns that fit by their place, and a line on shortened or hidden columns."""
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
    return kept, [f"{'; '.join(done)}. --wide shows everything"] if done else []
