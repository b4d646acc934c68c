"""Keeping ptera working: the nodes of `ast` that newer Pythons lack, and no import of codefind.

ptera is imported only when a selector asks for it.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import types
from collections.abc import Iterator


def import_ptera() -> types.ModuleType:
    """Return ptera.probe, with an `ast` that has the nodes that Python's own has lost (3.14) or warns of (3.12)."""
    import ptera  # noqa: F401

    transform = sys.modules["ptera.transform"]
    if not isinstance(transform.ast, _OldAst):
        vars(transform)["ast"] = _OldAst()
    return sys.modules["ptera.probe"]


@contextlib.contextmanager
def without_codefind() -> Iterator[None]:
    """Keep ptera from importing codefind, which it can do without: it walks every object of the process (1 s with torch)."""
    if "codefind" in sys.modules:
        yield
        return
    sys.modules["codefind"] = None  # type: ignore[assignment]  # importing it raises ImportError, which ptera expects
    try:
        yield
    finally:
        del sys.modules["codefind"]


class _OldAst(types.ModuleType):
    """The `ast` that ptera was written for."""

    def __init__(self) -> None:
        super().__init__("ast")
        self.__dict__.update(
            {name: value for name, value in vars(ast).items() if name not in ("__getattr__", "Str", "Index")}
        )
        self.__dict__.update(Str=_Str, Index=_Index, Name=_Name)


class _StrMeta(type):
    def __instancecheck__(cls, node: object) -> bool:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return False
        if sys.version_info >= (3, 14):
            node.s = node.value  # which ptera reads
        return True


class _Str(metaclass=_StrMeta):
    def __new__(cls, s: str) -> ast.Constant:  # type: ignore[misc]
        return ast.Constant(value=s)


class _NameMeta(type):
    def __instancecheck__(cls, node: object) -> bool:
        return isinstance(node, ast.Name)


class _Name(metaclass=_NameMeta):
    def __new__(cls, id: str, ctx: ast.expr_context | None = None, **_: object) -> ast.Name:  # type: ignore[misc]  # noqa: A002
        # ptera says `context` in one place, which Python warns of from 3.13 on and is to refuse from 3.15 on.
        return ast.Name(id=id, ctx=ctx or ast.Load())


class _Index:
    def __new__(cls, value: ast.expr) -> ast.expr:  # type: ignore[misc]
        return value
