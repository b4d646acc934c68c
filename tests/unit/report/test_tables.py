"""Tables that fit a terminal: which columns go first, and that the reader is told."""

from __future__ import annotations

import pytest

from milabench.report.document import words_table
from milabench.report.text import document_text
from milabench.report.text_table import LONGEST, text_table

HEADINGS = ["run", "verdict", "began", "benchmarks"]
ROWS = [
    ["night.2026-11-20", "passed", "2026-11-20 11:43", "digits, flax"],
    ["day", "failed", "2026-11-21 09:00", "ppo"],
]
SPARE = ("benchmarks", "began")


def lines(width: int | None, rows: list[list[str]] = ROWS, spare: tuple[str, ...] = SPARE) -> list[str]:
    return text_table(" | ".join(HEADINGS), rows, spare, width)


def test_a_table_that_fits_is_whole() -> None:
    whole = lines(None)
    assert lines(max(map(len, whole))) == whole
    assert len(whole) == 4


@pytest.mark.parametrize(
    ("width", "left_out"), [(56, "1 column left out (benchmarks)"), (40, "2 columns left out (benchmarks, began)")]
)
def test_the_least_important_columns_are_left_out_first(width: int, left_out: str) -> None:
    *table, note = lines(width)
    assert note == f"{left_out}. --wide shows everything"
    assert max(map(len, table)) <= width
    assert table[0].split(" | ")[0].strip() == "run"


def test_a_column_that_is_not_spare_stays_however_narrow_the_terminal() -> None:
    assert [cell.strip() for cell in lines(5)[0].split("|")] == ["run", "verdict"]


def test_long_values_are_shortened_before_a_column_is_left_out() -> None:
    rows = [["a", "passed", "now", "x" * 200]]
    *table, note = lines(80, rows)
    assert note == "long values shortened. --wide shows everything"
    assert table[-1].endswith("x" * (LONGEST - 1) + "…")
    assert "x" * 200 in lines(None, rows)[-1]


def test_the_first_column_is_copied_from_here_and_stays_whole() -> None:
    name = "n" * (LONGEST + 20)
    assert lines(70, [[name, "passed", "now", "x"]])[2].startswith(name)


def test_columns_of_the_same_name_are_left_out_one_by_one() -> None:
    table = text_table("a | b | b", [["1", "2" * 30, "3" * 30]], ("b", "a"), 40)
    assert table[-1].startswith("1 column left out (b)")
    assert table[0].startswith("a")


def test_of_many_columns_only_some_are_named() -> None:
    *_, note = text_table("a | b | c | d | e | f | g", [["x"] * 7], list("gfedcba"), 3)
    assert note == "6 columns left out (g, f, e, d, ...). --wide shows everything"


def test_a_table_of_a_document_is_fitted_too() -> None:
    table = words_table("", HEADINGS, ROWS)
    assert "--wide" not in document_text((table,), width=20)  # it has no spare column
    from dataclasses import replace

    assert "2 columns left out" in document_text((replace(table, spare=SPARE),), width=40)
