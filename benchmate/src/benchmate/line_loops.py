"""Loops of the program that are observed where they stand: `for` and `while` statements, named by their lines.

Before the program is compiled, the iterable of such a `for`, or the condition of such a `while`, becomes the argument of a
function of ours, and such a `while` tells when it ends. Nothing else of the program changes. Of `enumerate(loader)` and
`enumerate(tqdm(loader))` it is the loader.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

Wrap = Callable[[object], object]

_WRAPPERS = ("enumerate", "tqdm")

_wraps: dict[int, tuple[Wrap, Wrap, Callable[[], None]]] = {}
"""By the line of a loop: the functions for the iterable of a `for`, the condition of a `while` and its end."""
_lines: list[int] = []
"""The lines of the program that hold a loop."""


def observe_line(line: int, for_loop: Wrap, while_loop: Wrap, while_ended: Callable[[], None]) -> None:
    """Pass the iterable of the `for` at this line through `for_loop`, or the condition of the `while` through `while_loop`.

    `while_ended` is called when the `while` has ended, in whatever way.
    """
    _wraps[line] = for_loop, while_loop, while_ended


def place_line_loops(tree: ast.Module, namespace: dict[str, object]) -> ast.Module:
    """Return the program with the loops that are to be observed. The names that they need are put into its namespace."""
    if not _wraps:
        return tree
    placed: ast.Module = _LinePlacer(namespace).visit(tree)
    return ast.fix_missing_locations(placed)


def why_no_loop(line: int) -> str:
    """Return why the loop at this line was never observed."""
    if line in _lines:
        return "the program did not reach that loop"
    return f"line {line} holds no loop. There are loops at {', '.join(map(str, _lines[:20])) or 'no line'}"


class _LinePlacer(ast.NodeTransformer):
    def __init__(self, namespace: dict[str, object]) -> None:
        self._namespace = namespace

    def visit_For(self, node: ast.For) -> ast.For:
        wrapper, inner = None, node.iter
        while isinstance(inner, ast.Call) and _last_name(inner.func) in _WRAPPERS and inner.args:
            wrapper, inner = inner, inner.args[0]
        passed = self._passed(node, inner, 0)
        if wrapper is None:
            node.iter = passed
        else:
            wrapper.args[0] = passed
        self.generic_visit(node)
        return node

    def visit_While(self, node: ast.While) -> ast.stmt:
        node.test = self._passed(node, node.test, 1)
        self.generic_visit(node)
        if node.lineno not in _wraps:
            return node
        ended = ast.Expr(self._call(node, [], 2))
        return ast.copy_location(ast.Try(body=[node], handlers=[], orelse=[], finalbody=[ended]), node)

    def _passed(self, loop: ast.stmt, value: ast.expr, kind: int) -> ast.expr:
        """Return the value of a loop, passed through our function where the loop is observed."""
        _lines.append(loop.lineno)
        return self._call(loop, [value], kind) if loop.lineno in _wraps else value

    def _call(self, loop: ast.stmt, args: list[ast.expr], kind: int) -> ast.expr:
        name = f"__benchmate_loop_{loop.lineno}_{kind}__"
        self._namespace[name] = _wraps[loop.lineno][kind]
        call = ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=args, keywords=[])
        return ast.copy_location(call, args[0] if args else loop)


def _last_name(node: ast.expr) -> str:
    name: str = getattr(node, "attr", getattr(node, "id", ""))
    return name
