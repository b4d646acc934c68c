"""Evaluates the formulas of a workbook, so that a test need not believe the values that were written beside them.

Knows what our workbooks use: numbers, references and ranges, also of other sheets, + - * / ^, parentheses, comparisons, text,
and a handful of functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openpyxl

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?)|"(?P<text>[^"]*)"
    |(?:'(?P<sheet>(?:[^']|'')+)'!)?(?P<cell>\$?[A-Z]{1,3}\$?\d+)(?::(?P<end>\$?[A-Z]{1,3}\$?\d+))?
    |(?P<name>[A-Z]+)(?=\()|(?P<sign><=|>=|<>|[-+*/^(),<>=]))""",
    re.VERBOSE,
)


class Book:
    """A workbook: `of(sheet, cell)` is what a cell comes to by our own arithmetic, `cached` what was written beside it."""

    def __init__(self, path: Path) -> None:
        self.formulas = openpyxl.load_workbook(path)
        self.cached = openpyxl.load_workbook(path, data_only=True)

    def of(self, sheet: str, cell: str) -> Any:
        found = self.formulas[sheet][cell.replace("$", "")]
        return _Parser(self, sheet, found.value[1:]).whole() if found.data_type == "f" else found.value

    def formula_cells(self) -> Iterator[tuple[str, str, Any]]:
        """Sheet, cell and cached value of every formula."""
        for page in self.formulas.worksheets:
            for row in page.iter_rows():
                for cell in row:
                    if cell.data_type == "f":
                        yield page.title, cell.coordinate, self.cached[page.title][cell.coordinate].value

    def check(self) -> int:
        """Recompute every formula against the value beside it; the count of them."""
        count = 0
        for sheet, cell, cached in self.formula_cells():
            found = self.of(sheet, cell)
            where = f"{sheet}!{cell} = {self.formulas[sheet][cell].value}"
            if isinstance(cached, int | float):
                assert math.isclose(found, cached, rel_tol=1e-9), f"{where}: {found}, written {cached}"
            else:
                assert found == cached, f"{where}: {found}, written {cached}"
            count += 1
        return count


def _numbers(values: list[Any]) -> list[float]:
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [float(item) for item in flat if isinstance(item, int | float) and not isinstance(item, bool)]


_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "SUM": lambda values: math.fsum(_numbers(values)),
    "EXP": lambda values: math.exp(values[0]),
    "LN": lambda values: math.log(values[0]),
    "MIN": lambda values: min(_numbers(values)),
    "MAX": lambda values: max(_numbers(values)),
    "IF": lambda values: values[1] if values[0] else values[2],
    "AND": all,
}


class _Parser:
    def __init__(self, book: Book, sheet: str, text: str) -> None:
        self.book, self.sheet = book, sheet
        self.tokens: list[re.Match[str]] = []
        at = 0
        while at < len(text.rstrip()):
            token = _TOKEN.match(text, at)
            assert token is not None, f"{text!r} at {at}"
            self.tokens.append(token)
            at = token.end()

    def whole(self) -> Any:
        value = self.comparison()
        assert not self.tokens, f"left over: {[token[0] for token in self.tokens]}"
        return value

    def sign(self, *signs: str) -> str:
        if self.tokens and self.tokens[0]["sign"] in signs:
            return self.tokens.pop(0)["sign"]
        return ""

    def comparison(self) -> Any:
        value = self.sum()
        while sign := self.sign("<", ">", "=", "<=", ">=", "<>"):
            other = self.sum()
            value = {
                "<": lambda a, b: a < b,
                ">": lambda a, b: a > b,
                "=": lambda a, b: a == b,
                "<=": lambda a, b: a <= b,
                ">=": lambda a, b: a >= b,
                "<>": lambda a, b: a != b,
            }[sign](value, other)
        return value

    def sum(self) -> Any:
        value = self.product()
        while sign := self.sign("+", "-"):
            value = value + self.product() if sign == "+" else value - self.product()
        return value

    def product(self) -> Any:
        value = self.power()
        while sign := self.sign("*", "/"):
            value = value * self.power() if sign == "*" else value / self.power()
        return value

    def power(self) -> Any:
        # In a spreadsheet the minus before a number binds first: -2^2 is 4.
        value = self.unary()
        while self.sign("^"):
            value = value ** self.unary()
        return value

    def unary(self) -> Any:
        return -self.unary() if self.sign("-") else self.atom()

    def atom(self) -> Any:
        if self.sign("("):
            value = self.comparison()
            assert self.sign(")")
            return value
        token = self.tokens.pop(0)
        if token["number"]:
            return float(token["number"])
        if token["text"] is not None:
            return token["text"]
        if token["cell"]:
            return self.reference(token)
        assert token["name"], token[0]
        assert self.sign("(")
        values = [self.comparison()]
        while self.sign(","):
            values.append(self.comparison())
        assert self.sign(")")
        return _FUNCTIONS[token["name"]](values)

    def reference(self, token: re.Match[str]) -> Any:
        sheet = (token["sheet"] or self.sheet).replace("''", "'")
        if not token["end"]:
            return self.book.of(sheet, token["cell"])
        cells = self.book.formulas[sheet][f"{token['cell']}:{token['end']}".replace("$", "")]
        return [self.book.of(sheet, cell.coordinate) for row in cells for cell in row]
