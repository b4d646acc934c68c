"""Emits to many sinks. A sink that fails is dropped with a warning, and the run continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Fanout(Generic[T]):
    """Hands each thing to every sink, in the order given.

    A sink that raises is dropped, and `warn` is called once, with a line, under the sink's name. An error of `warn`
    itself is ignored.
    """

    def __init__(self, sinks: Mapping[str, Callable[[T], object]], warn: Callable[[str], object]) -> None:
        self._sinks = dict(sinks)
        self._warn = warn

    def __call__(self, item: T) -> None:
        for name, sink in tuple(self._sinks.items()):
            try:
                sink(item)
            except Exception as error:  # of any kind: a failed sink must not end the run
                del self._sinks[name]
                with suppress(Exception):
                    self._warn(f"{name}: dropped, the run goes on: {type(error).__name__}: {error}")
