"""Replacing an attribute of a module or class, named by its dotted path, as soon as the module has been imported.

Nothing is imported on the program's behalf, and a module's own lazy attributes are left asleep.
"""

from __future__ import annotations

import builtins
import difflib
import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Wrap = Callable[[Any], Any]

MISSING = object()


class Patch:
    """An attribute to replace: `pkg.mod.Class.method`, or `__main__.name` in the script. `wrap(original)` makes its successor."""

    def __init__(self, target: str, wrap: Wrap) -> None:
        self.target = target
        self.parts = target.split(".")
        self.wrap = wrap
        self.is_applied = False

    def apply(self) -> bool:
        """Replace the attribute if all that leads to it exists; True once that has been done."""
        if self.is_applied:
            return True
        owner, name = self._owner(), self.parts[-1]
        if owner is None:
            return False
        raw = _own_attribute(owner, name)
        if raw is MISSING and self.parts[0] == "__main__" and len(self.parts) == 2:
            raw = getattr(builtins, name, MISSING)
        if raw is MISSING:
            return False
        self.is_applied = True
        if isinstance(raw, (staticmethod, classmethod)):
            setattr(owner, name, type(raw)(self.wrap(raw.__func__)))
        else:
            setattr(owner, name, self.wrap(raw))
        return True

    def _owner(self) -> Any | None:
        """The module or class that holds the attribute; None as long as it does not exist."""
        for length in range(len(self.parts) - 1, 0, -1):
            module = sys.modules.get(".".join(self.parts[:length]))
            if module is None:
                continue
            owner: Any = module
            for name in self.parts[length:-1]:
                owner = _own_attribute(owner, name)
                if owner is MISSING:
                    break
            else:
                return owner
        return None

    def why_not(self) -> str:
        """Why it could not be applied, and what the author may have meant."""
        owner: Any = None
        path = ""
        for length in range(len(self.parts) - 1, 0, -1):
            path = ".".join(self.parts[:length])
            owner = sys.modules.get(path)
            if owner is not None:
                rest = self.parts[length:]
                break
        if owner is None:
            return f"no module {self.parts[0]} was ever imported"
        for name in rest:
            found = _own_attribute(owner, name)
            if found is MISSING:
                if isinstance(owner, ModuleType) and path != "__main__":
                    lazy = inspect.getattr_static(owner, name, None) or _lazy_attribute(owner, name)
                    defined_in = getattr(lazy, "__module__", None)
                    if defined_in and defined_in != path:
                        return f"{path} hands {name} out lazily; name the module that defines it: {defined_in}.{name}"
                return f"{path} has no {name!r}{nearest(name, _names(owner))}"
            owner, path = found, f"{path}.{name}"
        return "it exists now, but did not when the program ran"


class ImportWatcher:
    """Calls back when a module of interest has been imported; sits first on sys.meta_path and finds nothing itself."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._names: set[str] = set()

    def watch(self, parts: Sequence[str]) -> None:
        """Look out for every module that the path may lead through."""
        self._names.update(".".join(parts[:length]) for length in range(1, len(parts)))
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the next finder gives, its loader asked to tell us when it is done."""
        if name not in self._names:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                self._listen(spec.loader)
                return spec
        return None

    def _listen(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            self._callback()

        try:
            # On the instance, so that the loader stays what it is for everybody else (resources, inspect, pickle).
            loader.exec_module = exec_module
        except AttributeError:
            return


def nearest(name: str, names: Sequence[str], number: int = 3) -> str:
    """`; did you mean 'x' or 'y'?`, or what there is when nothing is like it; empty when there is nothing."""
    names = [other for other in names if name.startswith("__") or not other.startswith("__")]
    close = difflib.get_close_matches(name, names, number, 0.5)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    shown = [other for other in names if not other.startswith("_")][:8]
    return f"; it has {', '.join(shown)}" if shown else ""


def _own_attribute(owner: Any, name: str) -> Any:
    if isinstance(owner, ModuleType):
        return vars(owner).get(name, MISSING)
    return inspect.getattr_static(owner, name, MISSING)


def _lazy_attribute(owner: ModuleType, name: str) -> Any:
    try:
        return getattr(owner, name, None)
    except Exception:  # the module's own __getattr__: it may import anything
        return None


def _names(owner: Any) -> list[str]:
    return sorted(vars(owner)) if isinstance(owner, ModuleType) else dir(owner)
