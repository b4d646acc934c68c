"""Iterables and calls through which an observer sees a program's steps: wrapped iterables, and `Steps`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from benchmate.batch_size import BatchSize
from benchmate.loop_observer import Observer


class TransparentProxy:
    """An object that passes everything on to its wrapped object, except operations that a subclass defines."""

    def __init__(self, wrapped: object, **own: object) -> None:
        self.__dict__.update(_wrapped=wrapped, **own)

    def __getattr__(self, name: str) -> Any:
        # Special methods are looked up in the class; protocols that ask the instance must not find the wrapped object's.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_wrapped"], name)

    # A sampler or an epoch that the script sets belongs to the loader.
    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._wrapped, name, value)


class ObservedIterable(TransparentProxy):
    """An iterable with an observer behind it."""

    def __init__(self, wrapped: Iterable[object], observer: Observer, batch_size: BatchSize = None) -> None:
        super().__init__(wrapped, _observer=observer, _batch_size=batch_size)

    def __iter__(self) -> Iterator[object]:
        iteration: Iterator[object] = self._observer.iterate(self._wrapped, self._batch_size)
        return iteration

    def __length_hint__(self) -> int:
        return operator.length_hint(self._wrapped)

    # Else `if loader:` would call __len__, which an iterable data set does not have.
    def __bool__(self) -> bool:
        return bool(self._wrapped)

    def __getitem__(self, index: object) -> Any:
        return self._wrapped[index]

    def __contains__(self, item: object) -> bool:
        return item in self._wrapped

    def __repr__(self) -> str:
        return f"observed({self._wrapped!r})"

    def __reduce__(self) -> tuple[object, ...]:
        # A copy in another process is not the loop that is measured.
        return _unwrapped, (self._wrapped,)


class ObservedIterator(ObservedIterable):
    """An observed iterable that is an iterator itself, such as a generator: `next` works on it."""

    def __init__(self, wrapped: Iterable[object], observer: Observer, batch_size: BatchSize = None) -> None:
        super().__init__(wrapped, observer, batch_size)
        self.__dict__["_iteration"] = observer.iterate(wrapped, batch_size)

    def __iter__(self) -> Iterator[object]:
        # Not self: a `for` loop then asks the generator itself, without a call of __next__ at each step.
        iteration: Iterator[object] = self.__dict__["_iteration"]
        return iteration

    def __next__(self) -> object:
        return next(self.__dict__["_iteration"])


def observe_iterable(iterable: Iterable[object], observer: Observer, batch_size: BatchSize) -> ObservedIterable:
    """Wrap an iterable so that `observer` sees each step of the loops over it."""
    # As Python looks for them: an object may hand out its inner iterator's names.
    kind = ObservedIterator if hasattr(type(iterable), "__next__") else ObservedIterable
    if hasattr(type(iterable), "__len__"):
        kind = _with_length(kind)
    return kind(iterable, observer, batch_size)


@functools.cache
def _with_length(kind: type[ObservedIterable]) -> type[ObservedIterable]:
    """Return the class with a length. A program may ask what has none whether it has `__len__`."""
    return type(kind.__name__, (kind,), {"__len__": lambda proxy: len(proxy._wrapped)})


class Steps:
    """Observes steps where nothing can be wrapped: call it at the end of each. A step lasts from a call to the next."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._last_ns: int | None = None

    def begin(self) -> None:
        """Begin a step now: earlier work is in no step."""
        self._last_ns = self._observer.begin_step(self)

    def __call__(self, n: int | float = 1, result: object = None, source: object = None) -> None:
        """End a step of n items, which gave `result`. Without `begin` the first call only begins.

        `source` is the object that ended it, where it differs from call to call: of two in turn each would count all items.
        """
        self._last_ns = self._observer.end_step(self._last_ns, n, result, self if source is None else source)

    @property
    def is_answering(self) -> bool:
        """Whether the program's first steps are made again now."""
        return self._observer.is_answering

    @property
    def is_over(self) -> bool:
        """Whether the window is complete, for a loop of your own that asks for its end with `stop=True`."""
        return self._observer.is_over


def _unwrapped(value: object) -> object:
    return value
