"""The syntax tree of a script: its calls by full name, and the loops and functions around them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Final

MAIN: Final = "__main__"
LONGEST: Final = 60
"""Characters of an expression that are shown."""
Loop = ast.For | ast.While
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WRAPPERS = ("enumerate", "tqdm", "iter", "reversed", "zip", "islice", "track")
_JITTED = re.compile(r"\b(jit|pmap|filter_jit|shard_map)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something that a script has, and the line where it stands. `file` is empty for the program itself."""

    what: str
    line: int
    file: str = ""

    def __str__(self) -> str:
        """Return it with its place, for a person. A long expression is cut."""
        what = self.what if len(self.what) <= LONGEST else f"{self.what[: LONGEST - 3]}..."
        return f"`{what}`, {f'{self.file} ' if self.file else ''}line {self.line}"


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A call in a script: the full name of the function, as imports and assignments give it, and the node."""

    name: str
    node: ast.Call


@dataclass(frozen=True, slots=True)
class ImportedName:
    """Something that a script imports, a module or a name in it. Names of relative imports begin with dots.

    `alias` is the name that it has in the script, empty where that is the full name.
    """

    name: str
    alias: str
    line: int


@dataclass(frozen=True)
class Script:
    """A parsed source file. `module` is its name in imports, MAIN for the program itself."""

    tree: ast.Module
    module: str = MAIN
    file: Path = Path()

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of every node."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def found(self, what: str, node: ast.stmt | ast.expr) -> Found:
        """Return something in this script with its place."""
        file = "" if self.module == MAIN else f"{self.module.replace('.', '/')}.py"
        return Found(what=what, line=node.lineno, file=file)

    @cached_property
    def imported(self) -> tuple[ImportedName, ...]:
        """Everything that it imports."""
        imported: list[ImportedName] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                imported += [ImportedName(each.name, each.asname or "", node.lineno) for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (f"{node.module}." if node.module else "")
                names = [(module + each.name, each.asname or each.name) for each in node.names]
                imported += [ImportedName(name, alias, node.lineno) for name, alias in names]
        return tuple(imported)

    @cached_property
    def _aliases(self) -> dict[str, str]:
        """The full names behind imported names."""
        return {each.alias: each.name for each in self.imported if each.alias and not each.name.startswith(".")}

    def full_name(self, node: ast.expr) -> str:
        """Return `torch.optim.Adam` for `optim.Adam`, and the text of an expression that is no name."""
        return re.sub(r"\w+", lambda first: self._aliases.get(first[0], first[0]), ast.unparse(node), count=1)

    @cached_property
    def calls(self) -> tuple[ScriptCall, ...]:
        """Every call, in the order of lines."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return tuple(
            ScriptCall(self.full_name(node.func), node) for node in sorted(nodes, key=lambda node: node.lineno)
        )

    @cached_property
    def made_by(self) -> dict[str, str]:
        """The full name of the function whose result each name is assigned first."""
        made: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    for name in target.elts if isinstance(target, ast.Tuple) else (target,):
                        made.setdefault(ast.unparse(name), self.full_name(node.value.func))
        return made

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions at module level whose work is done when they return: no generators, nothing async."""
        functions = {node.name: ast.walk(node) for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        yields = (ast.Yield, ast.YieldFrom)
        return frozenset(
            name for name, nodes in functions.items() if not any(isinstance(node, yields) for node in nodes)
        )

    @cached_property
    def jitted(self) -> frozenset[str]:
        """The names of functions that JAX compiles: by a decorator, or assigned from `jax.jit(...)`."""
        decorated = {
            node.name
            for node in ast.walk(self.tree)
            if isinstance(node, _FUNCTIONS) and any(_JITTED.search(ast.unparse(each)) for each in node.decorator_list)
        }
        return frozenset(decorated | {name for name, made_by in self.made_by.items() if _JITTED.search(made_by)})

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the innermost first."""
        while (node := self.parents.get(node, self.tree)) is not self.tree:
            yield node

    def loops_around(self, node: ast.AST) -> tuple[Loop, ...]:
        """Return the loops that a node runs in, within its function, the innermost first."""
        within = takewhile(lambda outer: not isinstance(outer, _FUNCTIONS), self.above(node))
        return tuple(outer for outer in within if isinstance(outer, Loop))

    def is_compiled(self, node: ast.AST) -> bool:
        """Return whether a node stands in a function that JAX compiles, where a loop runs once."""
        return any(isinstance(outer, _FUNCTIONS) and outer.name in self.jitted for outer in self.above(node))

    def iterated(self, loop: Loop) -> ast.expr | None:
        """Return the iterable of a loop, without `enumerate`, `tqdm` and similar wrappers. None for a `while`."""
        if isinstance(loop, ast.While):
            return None
        iterated = loop.iter
        while isinstance(iterated, ast.Call) and iterated.args:
            if self.full_name(iterated.func).rpartition(".")[2] not in _WRAPPERS:
                break
            iterated = iterated.args[0]
        return iterated
