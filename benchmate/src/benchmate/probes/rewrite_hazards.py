"""Parts that ptera's rewriting of a function breaks or changes. Every hazard was seen in a run."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from collections.abc import Iterator

from benchmate.errors import ProbeError


def require_rewritable(function: types.FunctionType, name: str) -> None:
    """Raise ProbeError when `function` cannot be rewritten from its source without doing something else."""
    hazards = list(find_hazards(function))
    if hazards:
        raise ProbeError(
            f"probe {name}: rewriting {function.__qualname__} would change the program: {'; '.join(hazards)}. "
            "Probe a function that calls it, or use probes.iterable, probes.argument, probes.calls or probes.patch"
        )


def find_hazards(function: types.FunctionType) -> Iterator[str]:
    """Yield the parts of the function's source that ptera breaks or changes, each with its line."""
    if getattr(function, "__ptera_info__", None) is not None:
        return  # rewritten already
    try:
        lines, first_line = inspect.getsourcelines(function)
    except (OSError, TypeError):
        yield "its source is not available"
        return
    try:
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:
        yield "its source cannot be cut out of the file (text at column 0)"
        return
    root = tree.body[0]
    if isinstance(root, ast.AsyncFunctionDef):
        yield "it is async"
        return
    if not isinstance(root, ast.FunctionDef):
        yield "it is a lambda"
        return
    for node in _rewritten_nodes(root):
        hazard = _statement_hazard(node)
        if hazard:
            yield f"{hazard} (line {first_line + getattr(node, 'lineno', 1) - 1})"
    inner = [node for node in ast.walk(root) if node is not root]
    yield from _class_hazards(function, inner)
    yield from _missing_names(function, root)
    yield from _rebound_globals(function, inner)


def _statement_hazard(node: ast.AST) -> str:
    """Return the part of a statement or pattern that ptera would break. Empty without any."""
    match node:
        case ast.Nonlocal():
            return "nonlocal"
        case ast.MatchAs(name=str()) | ast.MatchStar(name=str()) | ast.MatchMapping(rest=str()):
            return "names captured by match"
        case ast.Assign(targets=targets) if any(isinstance(target, (ast.Tuple, ast.List)) for target in targets):
            if any(isinstance(item, ast.Starred) for target in targets for item in ast.walk(target)):
                return "starred unpacking"
            return "" if _is_display(node.value, targets) else "unpacking of a value that may not be indexable"
        case ast.For(target=ast.Attribute() | ast.Subscript()):
            return "a loop target that cannot be rewritten"
        case ast.For(target=target) if any(isinstance(item, (ast.Starred, ast.List)) for item in ast.walk(target)):
            return "a loop target that cannot be rewritten"
        case _:
            return ""


def _class_hazards(function: types.FunctionType, inner: list[ast.AST]) -> Iterator[str]:
    """Yield a method's uses of its class: ptera compiles it as a function of the module."""
    if "." in function.__qualname__.rpartition("<locals>.")[2]:
        names = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in inner
            if isinstance(node, (ast.Attribute, ast.Name))
        }
        private = sorted(name for name in names if name.startswith("__") and not name.endswith("__"))
        if private:
            yield f"private names lose their class: {', '.join(private)}"
    if "__class__" in function.__code__.co_freevars and any(_is_empty(cell) for cell in function.__closure__ or ()):
        yield "super() of a class that is not complete"


def _rewritten_nodes(root: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes that ptera rewrites: it leaves functions inside the function alone."""
    queue: list[ast.AST] = list(root.body)
    while queue:
        node = queue.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            queue.extend(ast.iter_child_nodes(node))


def _is_display(value: ast.expr, targets: list[ast.expr]) -> bool:
    """Return whether the value is written out with as many elements as are taken: then indexing it gives the same."""
    return isinstance(value, (ast.Tuple, ast.List)) and all(
        not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) == len(value.elts) for target in targets
    )


def _is_empty(cell: types.CellType) -> bool:
    """Return whether a variable of a closure has no value yet."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _missing_names(function: types.FunctionType, root: ast.FunctionDef) -> Iterator[str]:
    """Yield the names in annotations and defaults that cannot be evaluated again in the module's globals."""
    known = function.__globals__.keys() | vars(builtins).keys() | set(function.__code__.co_freevars)
    arguments = root.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotations = [argument.annotation for argument in parameters if argument is not None and argument.annotation]
    annotations += [root.returns] if root.returns else []
    # Annotations of local variables are never evaluated by Python, but are by ptera.
    annotations += [node.annotation for node in ast.walk(root) if isinstance(node, ast.AnnAssign)]
    for kind, expressions in (
        ("annotation", annotations),
        ("default", [*arguments.defaults, *filter(None, arguments.kw_defaults)]),
    ):
        for expression in expressions:
            names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
            missing = sorted(names - known)
            if missing:
                yield f"{kind} names {', '.join(missing)}, which the module does not have"
            if kind == "default" and any(isinstance(node, ast.Call) for node in ast.walk(expression)):
                yield f"the default {ast.unparse(expression)} would be evaluated a second time"


def _rebound_globals(function: types.FunctionType, inner: list[ast.AST]) -> Iterator[str]:
    """Yield the globals that the function reads and any function of its module assigns: ptera reads them once, at entry."""
    source_file = inspect.getsourcefile(function)
    try:
        module_source = "".join(inspect.findsource(inspect.getmodule(function) or function)[0])
        module_tree = ast.parse(module_source, source_file or "<module>")
    except (OSError, TypeError, SyntaxError):
        return
    rebound = {name for node in ast.walk(module_tree) if isinstance(node, ast.Global) for name in node.names}
    read = {node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    own = {name for node in inner if isinstance(node, ast.Global) for name in node.names}
    stale = sorted((rebound & read) - own)
    if stale:
        yield f"globals that change while it runs would be read once: {', '.join(stale)}"
