"""Workbooks: openpyxl opens them, and a spreadsheet's arithmetic comes to the numbers that stand beside the formulas."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest
from click.testing import CliRunner

from milabench.cli.compare import command as compare
from milabench.cli.report import command as report
from milabench.workbooks.workbook import Formula, Sheet, column, sheet_names, workbook_bytes
from tests.drawn_runs import HOSTILE, system
from tests.formulas import Book


def test_columns_are_named_as_spreadsheets_name_them() -> None:
    assert [column(number) for number in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


def test_sheets_have_names_that_excel_takes_and_no_two_alike() -> None:
    names = sheet_names(["a/b", "A_B", "x" * 40, "x" * 31, "", "'quoted'", "y" * 30 + "' z", "History"])
    assert names == ["a_b", "A_B 2", "x" * 31, "x" * 29 + " 4", "5", "quoted", "y" * 30, "History 8"]


def test_a_formula_names_a_sheet_whatever_that_is_called(tmp_path: Path) -> None:
    (name,) = sheet_names(['O\'Brien & "Co" =1+1'])
    first, second = Sheet(name=name), Sheet(name="second")
    first.add(7.0)
    second.add(Formula(text=f"2*{first.refer('A1')}", value=14.0))
    (tmp_path / "book.xlsx").write_bytes(workbook_bytes([first, second]))
    book = Book(tmp_path / "book.xlsx")
    assert book.check() == 1 and "'O''Brien" in book.formulas["second"]["A1"].value


def test_text_is_never_a_formula_and_the_same_sheets_give_the_same_bytes(tmp_path: Path) -> None:
    def written() -> bytes:
        sheet = Sheet(name="one")
        sheet.add("=1+1", '=HYPERLINK("http://x")', "http://x", is_head=True)
        sheet.add(2.0, Formula(text="A2*3", value=6.0), float("inf"))
        return workbook_bytes([sheet])

    (tmp_path / "book.xlsx").write_bytes(written())
    page = openpyxl.load_workbook(tmp_path / "book.xlsx")["one"]
    assert [cell.data_type for cell in page[1]] == ["s", "s", "s"] and all(cell.hyperlink is None for cell in page[1])
    assert [cell.value for cell in page[2]] == [2, "=A2*3", "inf"]
    assert Book(tmp_path / "book.xlsx").check() == 1
    assert written() == written()


@pytest.mark.slow
def test_a_report_of_runs_recomputes_to_its_own_numbers(tmp_path: Path) -> None:
    old, new = (str(system(tmp_path, name, faster).path) for name, faster in (("old", 1.0), ("new", 1.2)))
    target = tmp_path / "report.xlsx"
    done = CliRunner().invoke(report, [new, old, "--reference", old, "-o", str(target)], standalone_mode=False)
    assert done.exception is None, done.output
    book = Book(target)
    assert book.check() >= 16
    first, second, last = book.formulas.worksheets
    assert last.title == "all numbers" and last["A1"].value == "run"
    names = {cell.value for cell in first["A"]}
    assert HOSTILE in names and "index" in names
    row = next(cell.row for cell in second["A"] if cell.value == "index")
    assert book.of(second.title, f"B{row}") == pytest.approx(1.0)  # of the reference beside itself


@pytest.mark.slow
def test_a_comparison_is_a_workbook_of_its_numbers(tmp_path: Path) -> None:
    old, new = (str(system(tmp_path, name, faster).path) for name, faster in (("old", 1.0), ("new", 1.2)))
    target = tmp_path / "compare.xlsx"
    done = CliRunner().invoke(compare, [old, new, "-o", str(target)], standalone_mode=False)
    assert done.exception is None and done.return_value in (0, 1), done.output
    page = openpyxl.load_workbook(target)["comparison"]
    heads = next(row for row in page.iter_rows(values_only=True) if "ratio" in row)
    rows = [
        dict(zip(heads, row, strict=True)) for row in page.iter_rows(values_only=True) if row[0] in (HOSTILE, "(index)")
    ]
    assert "(index)" in {row["bench"] for row in rows} and all(isinstance(row["ratio"], float) for row in rows[-1:])
    done = CliRunner().invoke(compare, [old, new, "--tender", "t.yaml", "-o", str(target)], standalone_mode=False)
    assert "`milabench offer compare`" in str(done.exception)


@pytest.mark.parametrize(
    ("words", "why"),
    [(["--format", "xlsx"], "a workbook is no text: name the file"), (["--format", "xlsx", "--json"], "two formats")],
)
def test_a_workbook_needs_a_file(tmp_path: Path, words: list[str], why: str) -> None:
    run = str(system(tmp_path, "old", 1.0).path)
    done = CliRunner().invoke(report, [run, *words], standalone_mode=False)
    assert why in str(done.exception)
