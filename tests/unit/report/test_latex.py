"""What LaTeX would read as its own is written so that it does not."""

from __future__ import annotations

import re

import pytest

from milabench.report.document import Entry, Notes, Section, Table, Title
from milabench.report.latex import document_latex, latex_text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("50 % of a_b & c#d ${x}", r"50 \% of a\_b \& c\#d \$\{x\}"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("[0.9, 1.1] ± 2 ~ ^", r"{[}0.9, 1.1{]} $\pm$ 2 \textasciitilde{} \textasciicircum{}"),
        ("two\nlines", "two lines"),
    ],
)
def test_signs_of_latex_are_text(text: str, written: str) -> None:
    assert latex_text(text) == written


def test_a_document_is_balanced_and_its_tables_have_as_many_cells_as_columns() -> None:
    table = Table(title="all & more", headings=("name", "rate"), is_text=(True, False), rows=(("a&b", "1"), ("{", "2")))
    entries = (Entry(name="x_1", text="lost", details=(("log", "a%b"),)), Entry(name="", text="bare"))
    written = document_latex(
        (Title(text="run_1"), table, Notes(lines=("see %",)), Section(title="why", entries=entries))
    )
    assert r"\item \textbf{x\_1}: lost" in written and r"\item bare" in written
    begun = re.findall(r"\\begin\{(\w+)\}", written)
    assert sorted(begun) == sorted(re.findall(r"\\end\{(\w+)\}", written)) and begun.count("tabular") == 1
    rows = [line for line in written.splitlines() if line.endswith("\\\\")]
    assert len(rows) == 3 and all(len(re.findall(r"(?<!\\)&", row)) == 1 for row in rows)
    plain = re.sub(r"\\[{}]", "", written)
    assert plain.count("{") == plain.count("}")
