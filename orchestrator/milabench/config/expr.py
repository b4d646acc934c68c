"""A small expression language for `requires_capabilities` and `expr(...)`.

Names, indexing, arithmetic, comparisons, and/or/not, len, min and max over values it is given. No attributes, no
other calls, and bounds on the computation: an expression in a suite can be wrong, never dangerous.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeAlias

from milabench.config.problems import UnplacedProblem, did_you_mean

MAX_LENGTH: Final = 1_000
MAX_DEPTH: Final = 50
MAX_BITS: Final = 256
MAX_TEXT: Final = 10_000

_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}
_Nodes: TypeAlias = tuple[type[ast.AST], ...]
_VALUES: Final[_Nodes] = (ast.Constant, ast.Name, ast.Subscript, ast.List, ast.Tuple, ast.Call, ast.expr_context)
_OPERATIONS: Final[_Nodes] = (ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.UAdd, ast.USub, ast.BinOp, ast.Compare)
_NODES: Final[_Nodes] = (*_VALUES, *_OPERATIONS, *_ARITHMETIC, *_COMPARISONS)
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"len": len, "min": min, "max": max}
_ALLOWED: Final = "allowed: names, [index], + - * / // % **, comparisons, and or not, len, min, max"
_CONSTANTS: Final[Mapping[str, object]] = {"true": True, "false": False, "null": None}


def evaluate(text: str, names: Mapping[str, object]) -> object:
    """Return the value of the expression over these names. Raises UnplacedProblem when it has none."""
    with _naming(text):
        return _value(_parsed(text), names)


def check_expression(text: str) -> None:
    """Raise UnplacedProblem where the text is not an expression of this language. Names are not looked up."""
    with _naming(text):
        _parsed(text)


@contextmanager
def _naming(text: str) -> Iterator[None]:
    shown = text if len(text) <= 80 else text[:77] + "..."
    try:
        yield
    except UnplacedProblem as error:
        raise UnplacedProblem(f"in the expression {shown!r}: {error}", error.hint) from None


@lru_cache(maxsize=1_024)
def _parsed(text: str) -> ast.expr:
    """Return the syntax tree of an expression of this language."""
    if len(text) > MAX_LENGTH:
        raise UnplacedProblem(f"longer than {MAX_LENGTH} characters", _ALLOWED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about `1 is 1` and `"a"[1.5]` on stderr
            body = ast.parse(text.strip(), mode="eval").body
        _check(body, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "too deep"
        raise UnplacedProblem(f"not an expression ({reason})", _ALLOWED) from None
    except UnplacedProblem as error:
        raise UnplacedProblem(str(error), _ALLOWED) from None
    return body


def _check(node: ast.AST, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise UnplacedProblem("nested too deep")
    if not isinstance(node, _NODES):
        raise UnplacedProblem(f"{type(node).__name__} is not part of the language")
    if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str | None):
        raise UnplacedProblem(f"{type(node.value).__name__} values are not part of the language")
    if isinstance(node, ast.Call) and (node.keywords or getattr(node.func, "id", "") not in _FUNCTIONS):
        raise UnplacedProblem("only len, min and max can be called")
    for child in ast.iter_child_nodes(node):
        _check(child, depth + 1)


def _value(node: ast.expr, names: Mapping[str, object]) -> Any:
    try:
        return _bounded(_evaluated(node, names))
    except KeyError as error:
        raise UnplacedProblem(f"there is no key {error.args[0]!r}") from None
    except (TypeError, IndexError, ValueError, ArithmeticError) as error:
        raise UnplacedProblem(str(error)) from None


def _evaluated(node: ast.expr, names: Mapping[str, object]) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _named(name, names)
        case ast.Subscript(value=container, slice=index):
            return _value(container, names)[_value(index, names)]
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(op, _value(left, names), _value(right, names))
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand, names)
            if isinstance(op, ast.Not):
                return not value
            return -_number(value) if isinstance(op, ast.USub) else +_number(value)
        case ast.BoolOp(op=op, values=values):
            wanted = isinstance(op, ast.Or)
            result: Any = None
            for operand in values:
                result = _value(operand, names)
                if bool(result) is wanted:
                    break
            return result
        case ast.Compare(left=first, ops=ops, comparators=others):
            # Only as far as all comparisons hold, as in Python.
            pairs = pairwise(_value(operand, names) for operand in (first, *others))
            return all(_COMPARISONS[type(op)](left, right) for op, (left, right) in zip(ops, pairs, strict=False))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*[_value(argument, names) for argument in args])
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, names) for item in items]
        case _:
            raise UnplacedProblem(f"{type(node).__name__} is not part of the language")


def _named(name: str, names: Mapping[str, object]) -> Any:
    if name in names:
        return names[name]
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    # Names with an underscore are values of ours that stand for lists, see plan/render.py.
    known = [other for other in names if not other.startswith("_")]
    raise UnplacedProblem(f"there is no name {name!r}", did_you_mean(name, known))


def _number(value: object) -> Any:
    if isinstance(value, int | float):
        return value
    raise UnplacedProblem(f"arithmetic needs numbers, got {type(value).__name__}")


def _arithmetic(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(op, ast.Add) and isinstance(left, str) and isinstance(right, str):
        return left + right
    _number(left), _number(right)
    if isinstance(op, ast.Pow):
        # Before it is computed: 9**9**9 would not come back.
        size = max(abs(left), 1)
        if abs(right) > MAX_BITS or abs(right) * math.log2(size) > MAX_BITS:
            raise UnplacedProblem(f"a power beyond 2**{MAX_BITS}")
    result = _ARITHMETIC[type(op)](left, right)
    if isinstance(result, complex):
        raise UnplacedProblem("a root of a negative number")
    return result


def _bounded(value: object) -> object:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise UnplacedProblem(f"a number beyond 2**{MAX_BITS}")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise UnplacedProblem(f"text longer than {MAX_TEXT} characters")
    return value
