"""Imports put off until first use: voir brings packages that most runs never touch."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any


class _Attribute:
    """A name of a module that has not been imported yet; it is when the name is called or looked into."""

    def __init__(self, module: str, name: str) -> None:
        self.__module, self.__name = module, name

    def __real(self) -> Any:
        return getattr(importlib.import_module(self.__module), self.__name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__real()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__real(), name)


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Attribute(self.__name__, name)


@contextlib.contextmanager
def deferred_imports(*names: str) -> Iterator[None]:
    """While inside, importing one of these modules gives a stand-in that imports the real one at first use."""
    stand_ins = {name: _Module(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
