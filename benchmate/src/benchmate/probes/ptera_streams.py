"""The values that a ptera selector captures, with every function that it names found and checked before it is rewritten."""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
import sys
import types
from collections.abc import Mapping
from typing import Any

from benchmate.errors import ProbeError
from benchmate.patching import names_hint
from benchmate.probe_registry import Probe
from benchmate.probes.ptera_compat import import_ptera, without_codefind
from benchmate.probes.rewrite_hazards import require_rewritable

# /pkg.mod/Class/method or //function, not inside a word or a quoted text.
_REFERENCE = re.compile(r"(?<![\w/.'\"])/([\w.]*)((?:/\w+)+)")


def open_stream(
    selector: str, probe: Probe, *, env: Mapping[str, object], overridable: bool = False, **options: object
) -> Any:
    """Return a ptera probe on `selector`, with every function that it names found, and checked, beforehand.

    It is active inside `with`, and `probe[name]` is the stream of the values of a captured name.

    Raise ProbeError when a function does not exist (naming the nearest), cannot be rewritten, or would do something else
    once rewritten. `probe` fires at every emission, and an exception in a subscriber fails it, not the script.
    """
    namespace = dict(env)
    plain_selector, functions = _resolve(selector, namespace)
    module = import_ptera()
    base = module.OverridableProbe if overridable else module.Probe
    try:
        stream = _trusted_class(base, overridable)(plain_selector, env=namespace, **options)
    except ProbeError:
        raise
    except Exception as error:
        raise ProbeError(f"probe {selector!r}: {type(error).__name__}: {error}") from error
    focus = getattr(stream._selectors[0].main, "name", None)
    if overridable and any(focus in function.__code__.co_freevars for function in functions):
        raise ProbeError(f"probe {selector!r}: {focus} belongs to the function around it, and can be observed only")
    stream.benchmate_probe, stream.benchmate_functions = probe, functions
    return stream


def _resolve(selector: str, namespace: dict[str, object]) -> tuple[str, list[types.FunctionType]]:
    """Return the selector with its references replaced by names in `namespace`, and the functions that it will rewrite."""
    functions: list[types.FunctionType] = []
    wants_return_value = re.search(r"\)\s*as\s|#value", selector) is not None

    def examine(function: types.FunctionType, name: str) -> None:
        if wants_return_value and inspect.isgeneratorfunction(function):
            raise ProbeError(f"probe {name}: a generator function, whose call ptera never reports. Use probes.iterable")
        require_rewritable(function, name)
        functions.append(function)

    def by_object(match: re.Match[str]) -> str:
        function = find_function(match[1] or "__main__", match[2].strip("/").split("/"))
        if function is None:
            return match[0]
        examine(function, match[0])
        # The object itself: ptera's own search by name would miss aliases, and functions behind decorators.
        name = f"benchmate_{len(namespace)}_{function.__name__}"
        namespace[name] = function
        return name

    plain_selector = _REFERENCE.sub(by_object, selector)
    for name in re.findall(r"(?<![\w/.#$!>])([A-Za-z_]\w*(?:\.\w+)*)\s*(?=[(>])", plain_selector):
        function = _by_name(name, namespace)
        if isinstance(function, types.FunctionType) and function not in functions:
            examine(function, name)
    return plain_selector, functions


def _by_name(name: str, env: Mapping[str, object]) -> object:
    first, *rest = name.split(".")
    value = env.get(first, getattr(builtins, first, None))
    for part in rest:
        value = getattr(value, part, None)
    return inspect.unwrap(value) if callable(value) else None


def _trusted_class(base: Any, overridable: bool) -> Any:
    """Return a probe class that reports when it fires, keeps exceptions out of the script, and frees overridden values."""
    from ptera.utils import ABSENT

    plain_emit = sys.modules["ptera.probe"].Probe._emit
    wrap_emit = base._emit2

    class TrustedProbe(base):  # type: ignore[misc]  # a class of ptera
        benchmate_probe: Probe
        benchmate_functions: list[types.FunctionType]
        _value: object = ABSENT

        def _install_tooling(self) -> None:
            # Compiling a method leaves a global of its name behind, None where there was none: `sum` would be gone.
            spaces = [(function.__globals__, function.__name__) for function in self.benchmate_functions]
            left_behind = [(space, name) for space, name in spaces if name not in space]
            try:
                with without_codefind():
                    super()._install_tooling()
            except Exception as error:
                raise ProbeError(f"probe: {type(error).__name__}: {error}{self._variable_hint(error)}") from error
            for space, name in left_behind:
                space.pop(name, None)

        def _uninstall_tooling(self) -> None:
            with without_codefind():
                super()._uninstall_tooling()
            for function in self.benchmate_functions:
                function.__globals__.pop(None, None)  # type: ignore[call-overload]  # left by ptera, and it breaks dir()

        def _variable_hint(self, error: Exception) -> str:
            named = re.search(r"variable named `([^`]*)`", str(error))
            if named is None:
                return ""
            names = [name for function in self.benchmate_functions for name in function.__code__.co_varnames]
            return names_hint(named[1], names)

        def _emit(self, data: object, acc: object = None, element: object = None) -> object:
            self.benchmate_probe.fire()
            self._value = ABSENT
            try:
                plain_emit(self, data, acc=acc, element=element)
            except Exception as error:  # raised by a subscriber of the voirfile, not by the script
                self.benchmate_probe.failed(error)
            # ptera keeps what was overridden for ever; a model or loader must be freed.
            value, self._value = self._value, ABSENT
            return value if overridable else ABSENT

        def _emit2(self, data: object, acc: object = None, element: object = None) -> object:
            self.benchmate_probe.fire()
            try:
                value: object = wrap_emit(self, data, acc=acc, element=element)
            except Exception as error:
                self.benchmate_probe.failed(error)
                return ABSENT
            return value

    return TrustedProbe


def find_function(module_name: str, path: list[str]) -> types.FunctionType | None:
    """Return the function at `path` in a module, without its decorators. None when only ptera's own search may find it.

    Raise ProbeError when the module or the name does not exist.
    """
    try:
        module = sys.modules.get(module_name) or importlib.import_module(module_name)
    except ImportError as error:
        raise ProbeError(f"probe: module {module_name} cannot be imported: {error}") from error
    owner: object = module
    where = "the script" if module_name == "__main__" else module_name
    for index, name in enumerate(path):
        member = inspect.getattr_static(owner, name, None) if isinstance(owner, type) else vars(owner).get(name)
        if member is None:
            raise _not_found(name, owner, where)
        where = f"{where}.{name}" if index or module_name != "__main__" else name
        owner = member
        if index < len(path) - 1 and not isinstance(owner, (type, types.FunctionType)):
            return None
    return _function_in(owner, path[-1], where)


def _not_found(name: str, owner: object, where: str) -> ProbeError:
    if isinstance(owner, types.FunctionType):
        return ProbeError(
            f"probe: {name} is defined inside {where}, and exists only while that runs. "
            f"Probe {where}, or patch a function that it uses"
        )
    names = [
        other for other, value in vars(owner).items() if callable(value) or isinstance(value, (property, staticmethod))
    ]
    return ProbeError(
        f"probe: {where} has no function {name!r}{names_hint(name, names)}"
        + (". Names below the last def or class do not exist yet" if where == "the script" else "")
    )


def _function_in(value: object, name: str, where: str) -> types.FunctionType | None:
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    try:
        value = inspect.unwrap(value) if callable(value) else value
    except ValueError:
        return None
    if isinstance(value, type):
        raise ProbeError(f"probe: {where} is a class. Probe its __init__, or a function that creates it")
    if not isinstance(value, types.FunctionType):
        if isinstance(value, types.BuiltinFunctionType) or type(value).__name__ in (
            "method_descriptor",
            "wrapper_descriptor",
        ):
            raise ProbeError(f"probe: {where} is written in C and cannot be rewritten. Use probes.patch")
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
        raise ProbeError(f"probe: {where} is a lambda, which cannot be rewritten. Use probes.patch")
    return None
