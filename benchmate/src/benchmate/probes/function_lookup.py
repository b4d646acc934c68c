"""Finding the function that a selector names: in the script or in a module, behind its decorators."""

from __future__ import annotations

import importlib
import inspect
import sys
import types

from benchmate.errors import ProbeError
from benchmate.patching import names_hint


def find_function(module_name: str, path: list[str]) -> types.FunctionType | None:
    """Return the function at `path` in a module, without its decorators; None when only ptera's own search may find it.

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
            f"probe: {name} is defined inside {where}, and exists only while that runs; "
            f"probe {where}, or patch what it uses"
        )
    names = [
        other for other, value in vars(owner).items() if callable(value) or isinstance(value, (property, staticmethod))
    ]
    return ProbeError(
        f"probe: {where} has no function {name!r}{names_hint(name, names)}"
        + ("; what stands below the last def or class does not exist yet" if where == "the script" else "")
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
