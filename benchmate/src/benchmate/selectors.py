"""ptera, made safe: which function a selector means, what would break if it were rewritten, and probes that can be trusted.

Imports ptera only when a selector asks for it, and codefind (which walks every object of the process) never, unless a
reference can be found in no other way.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from benchmate.errors import ProbeError
from benchmate.patching import nearest

# /pkg.mod/Class/method or //function, not inside a word or a quoted text.
_REFERENCE = re.compile(r"(?<![\w/.'\"])/([\w.]*)((?:/\w+)+)")

OnFire = Callable[[], None]
OnError = Callable[[BaseException], None]


def make_probe(selector: str, *, on_fire: OnFire, on_error: OnError, env: dict[str, Any], **options: Any) -> Any:
    """A ptera probe on `selector`, with every function that it names found, and checked, beforehand.

    Raises ProbeError when a function does not exist (naming the nearest), cannot be rewritten, or would do something else
    once rewritten. `on_fire` is called at every emission; an exception in a subscriber goes to `on_error`, not into the script.
    """
    env = dict(env)
    functions: list[types.FunctionType] = []
    wants_return_value = re.search(r"\)\s*as\s|#value", selector) is not None

    def examine(function: types.FunctionType, name: str) -> None:
        if wants_return_value and inspect.isgeneratorfunction(function):
            raise ProbeError(f"probe {name}: a generator function, whose call ptera never reports; use probes.iterable")
        require_rewritable(function, name)
        functions.append(function)

    def by_object(match: re.Match[str]) -> str:
        function = find_function(match[1] or "__main__", match[2].strip("/").split("/"))
        if function is None:
            return match[0]
        examine(function, match[0])
        name = f"benchmate_{len(env)}_{function.__name__}"
        env[name] = function
        return name

    rewritten = _REFERENCE.sub(by_object, selector)
    for name in re.findall(r"(?<![\w/.#$!>])([A-Za-z_]\w*(?:\.\w+)*)\s*(?=[(>])", rewritten):
        function = _by_name(name, env)
        if isinstance(function, types.FunctionType) and function not in functions:
            examine(function, name)
    module = import_ptera()
    overridable = options.pop("overridable", False)
    base = module.OverridableProbe if overridable else module.Probe
    try:
        probe = _trusted(base, overridable)(rewritten, env=env, **options)
    except ProbeError:
        raise
    except Exception as error:
        raise ProbeError(f"probe {selector!r}: {type(error).__name__}: {error}") from error
    focus = getattr(probe._selectors[0].main, "name", None)
    if overridable and any(focus in function.__code__.co_freevars for function in functions):
        raise ProbeError(f"probe {selector!r}: {focus} belongs to the function around it, and can be observed only")
    probe.benchmate_on_fire, probe.benchmate_on_error, probe.benchmate_functions = on_fire, on_error, functions
    return probe


def import_ptera() -> Any:
    """ptera.probe, with the nodes lent to it that Python's `ast` has lost (3.14) or warns of (3.12)."""
    import ptera  # noqa: F401

    transform = sys.modules["ptera.transform"]
    if not isinstance(transform.ast, _OldAst):
        transform.ast = _OldAst()
    return sys.modules["ptera.probe"]


class _OldAst(types.ModuleType):
    """The `ast` that ptera was written for."""

    def __init__(self) -> None:
        super().__init__("ast")
        self.__dict__.update(
            {name: value for name, value in vars(ast).items() if name not in ("__getattr__", "Str", "Index")}
        )
        self.__dict__.update(Str=_Str, Index=_Index, Name=_Name)


@contextlib.contextmanager
def _without_codefind() -> Iterator[None]:
    """Keep ptera from importing codefind: it can do without, and codefind walks every object of the process (1 s with torch)."""
    if "codefind" in sys.modules:
        yield
        return
    sys.modules["codefind"] = None  # type: ignore[assignment]  # importing it raises ImportError, which ptera expects
    try:
        yield
    finally:
        del sys.modules["codefind"]


class _StrMeta(type):
    def __instancecheck__(cls, node: object) -> bool:
        return isinstance(node, ast.Constant) and isinstance(node.value, str)


class _Str(metaclass=_StrMeta):
    def __new__(cls, s: str) -> ast.Constant:  # type: ignore[misc]
        return ast.Constant(value=s)


class _NameMeta(type):
    def __instancecheck__(cls, node: object) -> bool:
        return isinstance(node, ast.Name)


class _Name(metaclass=_NameMeta):
    def __new__(cls, id: str, ctx: ast.expr_context | None = None, **_: Any) -> ast.Name:  # type: ignore[misc]  # noqa: A002
        # ptera says `context` in one place, which Python warns of from 3.13 on and is to refuse from 3.15 on.
        return ast.Name(id=id, ctx=ctx or ast.Load())


class _Index:
    def __new__(cls, value: ast.expr) -> ast.expr:  # type: ignore[misc]
        return value


def _trusted(base: type, overridable: bool) -> type:
    """A probe class that reports what fires, keeps subscribers' exceptions out of the script, and lets overridden objects go."""
    from ptera.utils import ABSENT

    plain_emit = sys.modules["ptera.probe"].Probe._emit
    wrap_emit = base._emit2

    class TrustedProbe(base):
        benchmate_on_fire: OnFire
        benchmate_on_error: OnError
        benchmate_functions: list[types.FunctionType]
        _value: Any = ABSENT

        def _install_tooling(self) -> None:
            # Compiling a method leaves a global of its name behind, None where there was none: `sum` would be gone.
            spaces = [(function.__globals__, function.__name__) for function in self.benchmate_functions]
            left_behind = [(space, name) for space, name in spaces if name not in space]
            try:
                with _without_codefind():
                    super()._install_tooling()
            except Exception as error:
                raise ProbeError(f"probe: {type(error).__name__}: {error}{self._nearest_variable(error)}") from error
            for space, name in left_behind:
                space.pop(name, None)

        def _uninstall_tooling(self) -> None:
            with _without_codefind():
                super()._uninstall_tooling()
            for function in self.benchmate_functions:
                function.__globals__.pop(None, None)  # type: ignore[call-overload]  # ptera's, and it breaks dir()

        def _nearest_variable(self, error: Exception) -> str:
            named = re.search(r"variable named `([^`]*)`", str(error))
            if named is None:
                return ""
            names = [name for function in self.benchmate_functions for name in function.__code__.co_varnames]
            return nearest(named[1], names)

        def _emit(self, data: Any, acc: Any = None, element: Any = None) -> Any:
            self.benchmate_on_fire()
            self._value = ABSENT
            try:
                plain_emit(self, data, acc=acc, element=element)
            except Exception as error:  # a subscriber of the voirfile: the script must not feel it
                self.benchmate_on_error(error)
            # ptera keeps what was overridden for ever; a model or loader must be able to go.
            value, self._value = self._value, ABSENT
            return value if overridable else ABSENT

        def _emit2(self, data: Any, acc: Any = None, element: Any = None) -> Any:
            self.benchmate_on_fire()
            try:
                return wrap_emit(self, data, acc=acc, element=element)
            except Exception as error:
                self.benchmate_on_error(error)
                return ABSENT

    return TrustedProbe


# Finding


def find_function(module_name: str, path: list[str]) -> types.FunctionType | None:
    """The function at `path` in a module, its decorators taken off; None when only ptera's own search may find it.

    Raises ProbeError when the module or the name does not exist.
    """
    import importlib

    try:
        module = sys.modules.get(module_name) or importlib.import_module(module_name)
    except ImportError as error:
        raise ProbeError(f"probe: module {module_name} cannot be imported: {error}") from error
    owner: Any = module
    where = "the script" if module_name == "__main__" else module_name
    for index, name in enumerate(path):
        found = inspect.getattr_static(owner, name, None) if isinstance(owner, type) else vars(owner).get(name)
        if found is None:
            if isinstance(owner, types.FunctionType):
                raise ProbeError(
                    f"probe: {name} is defined inside {where}, and exists only while that runs; "
                    f"probe {where}, or patch what it uses"
                )
            names = [
                n for n, value in vars(owner).items() if callable(value) or isinstance(value, (property, staticmethod))
            ]
            raise ProbeError(
                f"probe: {where} has no function {name!r}{nearest(name, names)}"
                + ("; what stands below the last def or class does not exist yet" if where == "the script" else "")
            )
        where = f"{where}.{name}" if index or module_name != "__main__" else name
        owner = found
        if index < len(path) - 1 and not isinstance(owner, (type, types.FunctionType)):
            return None
    return _function_in(owner, path[-1], where)


def _function_in(value: Any, name: str, where: str) -> types.FunctionType | None:
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    try:
        value = inspect.unwrap(value)
    except ValueError:
        return None
    if isinstance(value, type):
        raise ProbeError(f"probe: {where} is a class; probe its __init__, or a function that makes one")
    if not isinstance(value, types.FunctionType):
        if isinstance(value, types.BuiltinFunctionType) or type(value).__name__ in (
            "method_descriptor",
            "wrapper_descriptor",
        ):
            raise ProbeError(f"probe: {where} is written in C and cannot be rewritten; use probes.patch")
        return None
    if name in (value.__name__, value.__code__.co_name):
        return value
    # A decorator that does not use functools.wraps: the function is in its closure.
    for cell in value.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError:
            continue
        if isinstance(inner, types.FunctionType) and inner.__name__ == name:
            return inner
    if value.__name__ == "<lambda>":
        raise ProbeError(f"probe: {where} is a lambda, which cannot be rewritten; use probes.patch")
    return None


def _by_name(name: str, env: dict[str, Any]) -> Any:
    first, *rest = name.split(".")
    value = env.get(first, getattr(builtins, first, None))
    for part in rest:
        value = getattr(value, part, None)
    return inspect.unwrap(value) if callable(value) else None


# Checking: the constructs that ptera's rewriting breaks or changes, each found by running it


def require_rewritable(function: types.FunctionType, name: str) -> None:
    """Raise ProbeError when `function` cannot be rewritten from its source without doing something else."""
    hazards = list(find_hazards(function))
    if hazards:
        raise ProbeError(
            f"probe {name}: rewriting {function.__qualname__} would change the program: {'; '.join(hazards)}; "
            "probe a function that calls it, or use probes.iterable, probes.argument, probes.calls or probes.patch"
        )


def find_hazards(function: types.FunctionType) -> Iterator[str]:
    """What in the function's source ptera breaks or changes, each with its line."""
    if getattr(function, "__ptera_info__", None) is not None:
        return
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

    def at(node: ast.AST) -> str:
        return f"(line {first_line + getattr(node, 'lineno', 1) - 1})"

    inner = [node for node in ast.walk(root) if node is not root]
    for node in _rewritten_nodes(root):
        match node:
            case ast.Nonlocal():
                yield f"nonlocal {at(node)}"
            case ast.MatchAs(name=str()) | ast.MatchStar(name=str()) | ast.MatchMapping(rest=str()):
                yield f"names captured by match {at(node)}"
            case ast.Assign(targets=targets) if any(_is_unpacking(target) for target in targets):
                if any(isinstance(item, ast.Starred) for target in targets for item in ast.walk(target)):
                    yield f"starred unpacking {at(node)}"
                elif not _is_display(node.value, targets):
                    yield f"unpacking of a value that may not be indexable {at(node)}"
            case ast.For(target=target) if any(isinstance(item, (ast.Starred, ast.List)) for item in ast.walk(target)):
                yield f"a loop target that cannot be rewritten {at(node)}"
            case ast.For(target=ast.Attribute() | ast.Subscript()):
                yield f"a loop target that cannot be rewritten {at(node)}"
    in_class = "." in function.__qualname__.rpartition("<locals>.")[2]
    if in_class:
        private = sorted(
            {name for name in map(_identifier, inner) if name.startswith("__") and not name.endswith("__")}
        )
        if private:
            yield f"private names lose their class: {', '.join(private)}"
    if "__class__" in function.__code__.co_freevars and any(cell_is_empty(cell) for cell in function.__closure__ or ()):
        yield "super() of a class that is not complete"
    yield from _missing_names(function, root)
    yield from _rebound_globals(function, inner)


def _rewritten_nodes(root: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes that ptera rewrites: it leaves functions inside the function alone."""
    waiting: list[ast.AST] = list(root.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def _is_unpacking(target: ast.expr) -> bool:
    return isinstance(target, (ast.Tuple, ast.List))


def _is_display(value: ast.expr, targets: list[ast.expr]) -> bool:
    """Whether the value is written out with as many elements as are taken: then indexing it is the same."""
    return isinstance(value, (ast.Tuple, ast.List)) and all(
        not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) == len(value.elts) for target in targets
    )


def _identifier(node: ast.AST) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def cell_is_empty(cell: types.CellType) -> bool:
    """Whether a closure's variable has no value yet."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _missing_names(function: types.FunctionType, root: ast.FunctionDef) -> Iterator[str]:
    """Names in annotations and defaults that cannot be evaluated again in the module's globals."""
    known = function.__globals__.keys() | vars(builtins).keys() | set(function.__code__.co_freevars)
    arguments = root.args
    everything = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotations = [argument.annotation for argument in everything if argument is not None and argument.annotation]
    annotations += [root.returns] if root.returns else []
    # Annotations of local variables are never evaluated by Python, but are by ptera.
    annotations += [node.annotation for node in ast.walk(root) if isinstance(node, ast.AnnAssign)]
    for what, expressions in (
        ("annotation", annotations),
        ("default", [*arguments.defaults, *filter(None, arguments.kw_defaults)]),
    ):
        for expression in expressions:
            names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
            missing = sorted(names - known)
            if missing:
                yield f"{what} names {', '.join(missing)}, which the module does not have"
            if what == "default" and any(isinstance(node, ast.Call) for node in ast.walk(expression)):
                yield f"the default {ast.unparse(expression)} would be evaluated a second time"


def _rebound_globals(function: types.FunctionType, inner: list[ast.AST]) -> Iterator[str]:
    """Globals that the function reads and some function of its module assigns: ptera reads them once, at entry."""
    source_file = inspect.getsourcefile(function)
    try:
        module_source = "".join(inspect.findsource(inspect.getmodule(function) or function)[0])
        module_tree = ast.parse(module_source, source_file or "<module>")
    except (OSError, TypeError, SyntaxError):
        return
    rebound = {name for node in ast.walk(module_tree) if isinstance(node, ast.Global) for name in node.names}
    read = {node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    own = {name for node in inner if isinstance(node, ast.Global) for name in node.names}
    both = sorted((rebound & read) - own)
    if both:
        yield f"globals that change while it runs would be read once: {', '.join(both)}"
