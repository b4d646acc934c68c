"""Reports as LaTeX, to be included in a document that loads booktabs and graphicx: tables with captions, and what stands around
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from milabench.report.document import Block, Document, Entry, Notes, Properties, Section, Statement, Table, Title, Value
from milabench.report.document_renderer import DocumentRenderer
from milabench.shown import visible_line

HEAD = "% needs \\usepackage{booktabs,graphicx} and a Unicode engine, or utf8 input"
# A table that is wider than the line is made as wide as it.
_FITTED = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
_SIGNS = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    '"': "''",
    # An optional argument would begin with the first, as behind \\ and \item.
    "[": "{[}",
    "]": "{]}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_SYMBOLS = {
    "±": "$\\pm$",
    "×": "$\\times$",
    "≥": "$\\geq$",
    "≤": "$\\leq$",
    "−": "$-$",
    "…": "\\ldots{}",
    "µ": "$\\mu$",
}
_ESCAPES = str.maketrans(_SIGNS | _SYMBOLS)


def document_latex(document: Document) -> str:
    """Return the blocks with an empty line between them, without a preamble."""
    return "\n\n".join([HEAD, *("\n".join(_lines(block)) for block in document)]) + "\n"


def _lines(block: Block) -> Iterable[str]:
    match block:
        case Title():
            return [f"\\section*{{{latex_text(block.text)}}}"]
        case Properties():
            return _list(f"\\textbf{{{latex_text(name)}}}: {latex_text(text)}" for name, text in block.pairs)
        case Statement():
            return [f"\\textbf{{{latex_text(block.text)}}}"]
        case Value():
            return [f"\\textbf{{{latex_text(block.name.capitalize())}}}: {latex_text(block.text)}"]
        case Notes():
            return _list(latex_text(f"{block.name}: {line}" if block.name else line) for line in block.lines)
        case Section():
            heading = f"\\subsection*{{{latex_text(block.title[:1].upper() + block.title[1:])}}}"
            return [heading, *_list(map(_entry, block.entries))]
        case Table():
            return _table(block)
        case _:
            assert_never(block)


def _list(items: Iterable[str]) -> list[str]:
    lines = [f"\\item {item}" for item in items]
    return ["\\begin{itemize}", *lines, "\\end{itemize}"] if lines else []


def _entry(entry: Entry) -> str:
    details = "".join(f"; {latex_text(label)}: \\texttt{{{latex_text(text)}}}" for label, text in entry.details)
    name = f"\\textbf{{{latex_text(entry.name)}}}: " if entry.name else ""
    return f"{name}{latex_text(entry.text)}{details}"


def _table(table: Table) -> list[str]:
    columns = "".join("l" if text else "r" for text in table.is_text)
    rows = [f"{' & '.join(map(latex_text, row))} \\\\" for row in (table.headings, *table.rows)]
    caption = [f"\\caption{{{latex_text(table.title)}}}"] if table.title else []
    return [
        *(
            "\\begin{table}[htbp]",
            "\\centering",
            *caption,
            _FITTED,
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            rows[0],
        ),
        *("\\midrule", *rows[1:], "\\bottomrule", "\\end{tabular}}", "\\end{table}"),
    ]


def latex_text(text: str) -> str:
    """Return the text on one line, with nothing in it that LaTeX would read as its own."""
    # Two dashes would be one that is longer, and an option begins with them.
    return " ".join(visible_line(" ".join(text.split())).translate(_ESCAPES).split()).replace("--", "-{}-")


_RENDERER = DocumentRenderer(write=document_latex)
render, render_comparison = _RENDERER.render, _RENDERER.render_comparison
render_acceptance = _RENDERER.render_acceptance
