"""Imports deferred until first use: voir imports packages that most runs never use."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any


class _DeferredAttribute:
    """A name of a module that is imported when the name is called or looked into."""

    def __init__(self, module: str, name: str) -> None:
        self.__module, self.__name = module, name

    def __resolve(self) -> Any:
        return getattr(importlib.import_module(self.__module), self.__name)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.__resolve()(*args, **kwargs)

    def __getattr__(self, name: str) -> object:
        return getattr(self.__resolve(), name)


class _DeferredModule(types.ModuleType):
    def __getattr__(self, name: str) -> _DeferredAttribute:
        # The import system and inspect ask for __path__, __spec__ and the like: that is no use of the module.
        if name.startswith("__"):
            raise AttributeError(name)
        return _DeferredAttribute(self.__name__, name)


@contextlib.contextmanager
def deferred_imports(*names: str) -> Iterator[None]:
    """Make imports of these modules inside the `with` give stand-ins that import the real modules at first use."""
    stand_ins = {name: _DeferredModule(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
