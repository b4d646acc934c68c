"""Read the structure of the two source trees from their syntax: modules, imports, circles, complexity, lines.

Used by the layer tests and by `make figures`; imports nothing of the product.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTROL_PLANE = ROOT / "orchestrator" / "milabench"
INSTRUMENTS = ROOT / "benchmate" / "src" / "benchmate"

_LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.COMMENT,
    tokenize.ENCODING,
}
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert, ast.comprehension)
FOREIGN_NAMES = ("milabench.compat13.names.", "benchmate.milabench13.")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file; `name` is its dotted name, `is_package` whether it is an `__init__`."""

    name: str
    path: Path
    is_package: bool

    @cached_property
    def source(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, str(self.path))

    @cached_property
    def imports(self) -> frozenset[str]:
        """Return every dotted name that is imported anywhere: in functions and under TYPE_CHECKING too.

        `from a import b` gives `a` and `a.b`: which of them is a module is only known beside all modules.
        """
        names: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        return frozenset(names)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".")
        package = package[: len(package) - node.level + self.is_package]
        return ".".join([*package, *([node.module] if node.module else [])])

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, Function))

    @cached_property
    def public_names(self) -> tuple[str, ...]:
        """Return the functions and classes at top level whose names do not begin with an underscore."""
        return tuple(
            node.name
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
        )

    @cached_property
    def docstring_lines(self) -> frozenset[int]:
        lines: set[int] = set()
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Module | ast.ClassDef | Function)
                and ast.get_docstring(node, clean=False) is not None
            ):
                lines |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        return frozenset(lines)

    @cached_property
    def line_counts(self) -> tuple[int, int]:
        """Return (lines of code, lines with a comment); blank lines and docstrings are neither."""
        code: set[int] = set()
        comments: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type == tokenize.COMMENT:
                comments.add(token.start[0])
            elif token.type not in _LAYOUT:
                code |= set(range(token.start[0], token.end[0] + 1))
        return len(code - self.docstring_lines), len(comments)


@cache
def modules(tree: Path) -> Mapping[str, Module]:
    """Return, once for a process, the modules below a package's folder, by dotted name; linked folders are not followed twice."""
    by_name: dict[str, Module] = {}
    for path in sorted(tree.rglob("*.py")):
        parts = [tree.name, *path.relative_to(tree).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        by_name[name] = Module(name=name, path=path, is_package=is_package)
    return by_name


def import_graph(tree: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return which modules of the tree each of them imports.

    `from a import b` is an edge to `a.b` where that is a module, else to `a`.
    """
    graph: dict[str, set[str]] = {}
    for name, module in tree.items():
        targets = set()
        for imported in module.imports:
            if imported in tree:
                is_covered = tree[imported].is_package and any(
                    other.startswith(f"{imported}.") and other in tree for other in module.imports
                )
                if not is_covered and imported != name:
                    targets.add(imported)
        graph[name] = targets
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the groups of modules that import each other (strongly connected, Tarjan 1972), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            start = stack.index(name)
            group = stack[start:]
            del stack[start:]
            if len(group) > 1:
                groups.append(tuple(sorted(group)))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return groups


def complexity(function: Function) -> int:
    """Return McCabe's cyclomatic complexity: 1, and 1 for each branch; functions within count for themselves."""
    total = 1
    pending: list[ast.AST] = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if isinstance(node, Function | ast.Lambda):
            continue
        if isinstance(node, _BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.match_case):
            total += not (isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None)
        pending += ast.iter_child_nodes(node)
    return total


def local_imports(module: Module) -> int:
    """Return how many import statements stand in functions."""
    return sum(
        isinstance(node, ast.Import | ast.ImportFrom) for function in module.functions for node in ast.walk(function)
    )


def repeated_names(tree: Mapping[str, Module]) -> dict[str, list[str]]:
    """Return the public top-level names that more than one module defines, with those modules.

    The names that foreign programs import are not ours to choose.
    """
    places: dict[str, list[str]] = {}
    for name, module in tree.items():
        if name.startswith(FOREIGN_NAMES):
            continue
        for public in set(module.public_names):
            places.setdefault(public, []).append(name)
    return {public: names for public, names in sorted(places.items()) if len(names) > 1}


def identifiers(module: Module) -> Iterator[str]:
    """Yield every name that the module's code binds or uses: variables, parameters, attributes, definitions."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def identifier_counts(tree: Mapping[str, Module]) -> Counter[str]:
    """Return how often each name stands in the code of a tree."""
    return Counter(name for module in tree.values() for name in identifiers(module))
