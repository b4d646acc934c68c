"""Replacing an attribute of a module or class, named by its dotted path, as soon as the module has been imported.

Nothing is imported on the program's behalf, and a module's own lazy attributes are not triggered.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Wrap = Callable[[Any], object]

MISSING = object()


class Patch:
    """An attribute to replace: `pkg.mod.Class.method`, or `__main__.name` in the script; by `wrap(original)`.

    The package may not have been imported to its end: a `wrap` that calls the original may find it incomplete.
    """

    def __init__(self, target: str, wrap: Wrap) -> None:
        self.path = target.split(".")
        self.wrap = wrap
        self.is_applied = False

    def apply(self) -> bool:
        """Replace the attribute if all that leads to it exists. Return True once that has been done."""
        if self.is_applied:
            return True
        owner, rest, _ = self._resolve()
        if owner is None or len(rest) > 1:
            return False
        (name,) = rest
        original = _own_attribute(owner, name)
        if original is MISSING and self.path[0] == "__main__" and len(self.path) == 2:
            original = getattr(builtins, name, MISSING)
        if original is MISSING:
            return False
        self.is_applied = True
        if not isinstance(owner, (ModuleType, type)):
            setattr(owner, name, self.wrap(getattr(owner, name)))  # bound, as the program calls it
        # As it stands in the class: wrapped without its decorator, it would become a method of instances.
        elif isinstance(original, (staticmethod, classmethod)):
            setattr(owner, name, type(original)(self.wrap(original.__func__)))  # type: ignore[arg-type]
        else:
            setattr(owner, name, self.wrap(original))
        return True

    def _resolve(self) -> tuple[object | None, list[str], str]:
        """Follow the path as far as it exists, up to the owner of its last name. A submodule goes before an attribute.

        Return the module or class that was reached (None without any module), the names that are left, and the path to it.
        """
        nearest: tuple[object | None, list[str], str] = (None, self.path, "")
        # The longest first: a package may have an attribute with the name of its submodule.
        for length in range(len(self.path) - 1, 0, -1):
            reached = ".".join(self.path[:length])
            owner: object | None = sys.modules.get(reached)
            if owner is None:
                continue
            rest = self.path[length:]
            while len(rest) > 1:
                inner = _own_attribute(owner, rest[0])
                if inner is MISSING:
                    break
                owner, reached, rest = inner, f"{reached}.{rest[0]}", rest[1:]
            if len(rest) == 1:
                return owner, rest, reached
            if nearest[0] is None:
                nearest = (owner, rest, reached)
        return nearest

    def why_not(self) -> str:
        """Explain why it could not be applied, and guess the author's intention."""
        owner, (name, *_), path = self._resolve()
        if owner is None:
            return f"no module {self.path[0]} was ever imported"
        if _own_attribute(owner, name) is not MISSING:
            return "it exists now, but did not when the program ran"
        if isinstance(owner, ModuleType) and path != "__main__":
            from inspect import getattr_static

            lazy = getattr_static(owner, name, None) or _lazy_attribute(owner, name)
            defined_in = getattr(lazy, "__module__", None)
            if defined_in and defined_in != path:
                return f"{path} hands {name} out lazily. Name the module that defines it: {defined_in}.{name}"
        names = sorted(vars(owner)) if isinstance(owner, ModuleType) else dir(owner)
        return f"{path} has no {name!r}{names_hint(name, names)}"


class ImportWatcher:
    """Calls back when a watched module has been imported. Is first on sys.meta_path and finds no module itself."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._names: set[str] = set()

    def watch(self, *names: str) -> None:
        """Watch modules, too."""
        self._names.update(names)
        if self not in sys.meta_path:
            # First, because the finder that finds the module ends the search.
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the next finder, with a loader that calls back when it is done."""
        if name not in self._names:
            return None
        # Those after this one: another watcher, before it, is already asking, and would be asked again.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            if find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                self._call_back_after(spec.loader)
                return spec
        return None

    def _call_back_after(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        # A loader that is a class (of built-in and frozen modules) serves many modules, and is left alone.
        if execute is None or isinstance(loader, type):
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # that of another watcher, which runs this one, is already gone
            execute(module)
            self._callback()

        try:
            # On the instance, so that the loader keeps its class for others (resources, inspect, pickle).
            loader.exec_module = exec_module
        except AttributeError:
            return


def optimizer_step_hook(hook: Callable[..., None], moment: str = "post") -> Patch:
    """Return the patch that lets torch call `hook(optimizer, args, kwargs)` at each step of every optimizer.

    Those of the script's own classes are included, and a scheduler that wraps `step` changes nothing. `moment`: pre or post.
    """

    return registration(f"torch.optim.optimizer.register_optimizer_step_{moment}_hook", hook)


def registration(target: str, hook: object) -> Patch:
    """Return the patch that calls `target(hook)` once, as soon as the function `target` exists, and changes nothing."""

    def wrap(register: Callable[[object], object]) -> object:
        register(hook)
        return register

    return Patch(target, wrap)


def call_when_imported(name: str, function: Callable[[], object]) -> None:
    """Call the function now, or as soon as the module has been imported to its end."""
    if name in sys.modules:
        function()
    else:
        ImportWatcher(function).watch(name)


_waiting: list[Patch] = []


def apply_when_imported(patch: Patch) -> None:
    """Apply the patch now, or as soon as its module has been imported."""
    if not patch.apply():
        _waiting.append(patch)
        _watcher.watch(*(".".join(patch.path[:length]) for length in range(1, len(patch.path))))


def apply_waiting() -> None:
    """Apply the patches that have become possible."""
    _waiting[:] = [patch for patch in _waiting if not patch.apply()]


_watcher = ImportWatcher(apply_waiting)


def names_hint(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'x' or 'y'?`, or the first names when none is similar. Empty when there are none."""
    names = [other for other in names if name.startswith("__") or not other.startswith("__")]
    import difflib  # late: only who misspells a name needs it

    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f". Did you mean {' or '.join(map(repr, close))}?"
    shown = [other for other in names if not other.startswith("_")][:8]
    return f". It has {', '.join(shown)}" if shown else ""


def _own_attribute(owner: object, name: str) -> object:
    if isinstance(owner, ModuleType):
        return vars(owner).get(name, MISSING)
    # Imported late: a program without such a probe starts without it.
    from inspect import getattr_static

    return getattr_static(owner, name, MISSING)


def _lazy_attribute(owner: ModuleType, name: str) -> object:
    with contextlib.suppress(Exception):  # the module's own __getattr__: it may import anything
        attribute: object = getattr(owner, name, None)
        return attribute
    return None
