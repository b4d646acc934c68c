"""What LaTeX would read as its own is written so that it does not."""

from __future__ import annotations

import re
import shutil
import string
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from milabench.cli import compare
from milabench.report.document import Entry, Notes, Section, Table, Title
from milabench.report.latex import document_latex, latex_text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("50 % of a_b & c#d ${x}", r"50 \% of a\_b \& c\#d \$\{x\}"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("[0.9, 1.1] ± 2 ~ ^", r"{[}0.9, 1.1{]} $\pm$ 2 \textasciitilde{} \textasciicircum{}"),
        ("two\nlines", "two lines"),
        ("run --ab ---", "run -{}-ab -{}--"),
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


HAS_LATEX = (
    shutil.which("pdflatex") is not None
    and subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, check=False).returncode == 0
)
PREAMBLE = "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage[utf8]{inputenc}\n\\usepackage{booktabs,graphicx}\n"


def compiled(folder: Path, body: str) -> str:
    """What pdflatex says of a document, which it compiles without an error."""
    (folder / "main.tex").write_text(f"{PREAMBLE}\\begin{{document}}\n{body}\n\\end{{document}}\n")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / "main.pdf").stat().st_size > 5000
    return done.stdout


@pytest.mark.skipif(not HAS_LATEX, reason="no LaTeX with booktabs on this machine")
def test_every_sign_of_a_keyboard_compiles_as_text(tmp_path: Path) -> None:
    text = string.printable + " ± × ≥ ≤ − … µ é ² \\\\[3] \\item[x] --option"
    table = Table(title=text, headings=(text, "b"), is_text=(True, False), rows=((text, "1"), ("[x", "2"), ("*", "3")))
    entries = (Entry(name=text, text=text, details=(("log", text),)),)
    compiled(tmp_path, document_latex((Title(text=text), table, Section(title="why", entries=entries))))


@pytest.mark.skipif(not HAS_LATEX, reason="no LaTeX with booktabs on this machine")
def test_a_comparison_by_a_tender_compiles_and_its_tables_fit_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "procurement"  # a copy: summaries are kept beside the runs
    shutil.copytree(Path(__file__).resolve().parents[3] / "config" / "procurement", folder)
    words = [*(str(folder / f"vendor-{name}.yaml") for name in "ab"), "--tender", str(folder / "procurement.yaml")]
    done = CliRunner().invoke(compare.command, [*words, "--format", "latex"], standalone_mode=False)
    said = compiled(tmp_path, done.stdout)
    assert "Overfull" not in said.replace("\n", "")
