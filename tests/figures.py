"""Count what the house promises (docs/explanation/architecture.md): lines, circles, complexity, repeated names.

`python tests/figures.py` prints a table; `--write` puts it between the markers of the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from milabench.seams import FEATURES
from tests.structure import (
    CONTROL_PLANE,
    INSTRUMENTS,
    ROOT,
    Module,
    circles,
    complexity,
    identifier_counts,
    import_graph,
    local_imports,
    modules,
    repeated_names,
)

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
MOST_COMPLEX = 20
# Names that say nothing about what they hold; nox, of 3,500 lines, has 23 of the first and none of the second.
CATCH_ALL = ("found", "told", "said")
# Every verb's click command is `command`, every program's entry is `main`, and every report format renders; a pause is declared
# by a probe or in the program.
SHARED_NAMES = frozenset({"command", "main", "pause", "render", "render_acceptance", "render_comparison"})


@dataclass(frozen=True)
class Figures:
    """The counts of one source tree."""

    modules: int
    code_lines: int
    comment_lines: int
    longest: tuple[int, str]
    circles: int
    too_complex: int
    local_imports: int
    repeated: int
    catch_all: int
    any_uses: int


def figures(tree: Mapping[str, Module]) -> Figures:
    """Count one tree."""
    counts = [module.line_counts for module in tree.values()]
    names = identifier_counts(tree)
    return Figures(
        modules=len(tree),
        code_lines=sum(code for code, _ in counts),
        comment_lines=sum(comments for _, comments in counts),
        longest=max((module.line_counts[0], name) for name, module in tree.items()),
        circles=len(circles(import_graph(tree))),
        too_complex=sum(complexity(each) > MOST_COMPLEX for module in tree.values() for each in module.functions),
        local_imports=sum(map(local_imports, tree.values())),
        repeated=len(repeated_names(tree).keys() - SHARED_NAMES),
        catch_all=sum(names[name] for name in CATCH_ALL),
        any_uses=names["Any"],
    )


def table(trees: Mapping[str, Figures]) -> str:
    """Return the Markdown table of all trees, a column each, and of both together where that is a sum."""
    rows = {
        "modules": [each.modules for each in trees.values()],
        "lines of code (no blanks, comments, docstrings)": [each.code_lines for each in trees.values()],
        "lines with a comment": [each.comment_lines for each in trees.values()],
        "longest module, lines of code": [f"{each.longest[0]} (`{each.longest[1]}`)" for each in trees.values()],
        "circles of modules": [each.circles for each in trees.values()],
        f"functions of cyclomatic complexity over {MOST_COMPLEX}": [each.too_complex for each in trees.values()],
        "import statements in functions": [each.local_imports for each in trees.values()],
        "public names defined in several modules": [each.repeated for each in trees.values()],
        f"uses of catch-all names ({', '.join(CATCH_ALL)})": [each.catch_all for each in trees.values()],
        "uses of `Any`": [each.any_uses for each in trees.values()],
    }
    lines = [f"| | {' | '.join(trees)} | together |", f"|---|{'---|' * (len(trees) + 1)}"]
    for title, values in rows.items():
        numbers = [value for value in values if isinstance(value, int)]
        together = f"{sum(numbers):,}" if len(numbers) == len(values) else ""
        cells = [f"{value:,}" if isinstance(value, int) else value for value in values]
        lines.append(f"| {title} | {' | '.join(cells)} | {together} |")
    return "\n".join(lines) + "\n"


def rooms(tree: Mapping[str, Module]) -> str:
    """Return the Markdown table of the packages of the control plane with their modules and lines of code, the features apart."""
    lines: dict[str, list[int]] = {}
    for module in tree.values():
        room = module.name.split(".")[1] if "." in module.name else ""
        is_package = room and f"milabench.{room}" in tree and tree[f"milabench.{room}"].is_package
        lines.setdefault(room if is_package else "", []).append(module.line_counts[0])
    named = sorted(lines, key=lambda room: (room in FEATURES, -sum(lines[room])))
    rows = ["| room | | modules | lines of code |", "|---|---|---|---|"]
    for room in named:
        name, kind = f"`{room}/`" if room else "modules beside them", "feature" if room in FEATURES else "core"
        rows.append(f"| {name} | {kind} | {len(lines[room])} | {sum(lines[room]):,} |")
    core = sum(sum(counts) for room, counts in lines.items() if room not in FEATURES)
    return "\n".join([*rows, f"| all of the core | | | {core:,} |"]) + "\n"


def main() -> None:
    """Print the table, or write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the table to {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    trees = {"milabench": modules(CONTROL_PLANE), "benchmate": modules(INSTRUMENTS)}
    text = f"{table({name: figures(tree) for name, tree in trees.items()})}\n{rooms(trees['milabench'])}"
    print(text, end="")
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
