"""How many items a batch has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmate.errors import BatchSizeError

Size = Callable[[Any], "int | float"]
BatchSize = int | float | str | Callable[[Any], Any] | None

_WAY_OUT = "give batch_size=: a number, a key of the batch, or a function of the batch"


def size_function(batch_size: BatchSize) -> tuple[Size | None, int | float]:
    """(function, 0) that says the size of each batch, or (None, size) when all batches have the same."""
    if isinstance(batch_size, bool):
        raise BatchSizeError(f"batch_size={batch_size!r}: {_WAY_OUT}")
    if isinstance(batch_size, (int, float)):
        return None, batch_size
    if batch_size is None:
        return BatchSizeGuess().of, 0
    if isinstance(batch_size, str):
        return _by_key(batch_size), 0
    if callable(batch_size):
        return _by_function(batch_size), 0
    raise BatchSizeError(f"batch_size={batch_size!r}: {_WAY_OUT}")


class BatchSizeGuess:
    """The first dimension of the first tensor or array in a batch.

    Looks into tuples, lists and mappings, and into the attributes of a data class or other object. Where it was found in one
    batch, it is looked for first in the next. Raises BatchSizeError when there is none: a list of strings may be anything.
    """

    __slots__ = ("_key", "_way")

    def __init__(self) -> None:
        self._key: Any = None
        """The way where it is a single key, as it mostly is: walking a tuple costs as much again as the length."""
        self._way: tuple[Any, ...] | None = None

    def of(self, batch: Any) -> int:
        """The length of the batch."""
        if self._key is not None:
            try:
                return batch[self._key].shape[0]
            except (AttributeError, TypeError, LookupError):
                self._key = None
        if self._way is not None:
            value = batch
            try:
                for key in self._way:
                    value = value[key]
                return value.shape[0]
            except (AttributeError, TypeError, LookupError):
                self._way = None
        found = _first_length(batch, (), 4)
        if found is None:
            raise BatchSizeError(f"cannot tell how many items are in a batch of type {_describe(batch)}; {_WAY_OUT}")
        length, self._way = found
        self._key = self._way[0] if self._way is not None and len(self._way) == 1 else None
        return length


def _first_length(value: Any, way: tuple[Any, ...] | None, depth: int) -> tuple[int, tuple[Any, ...] | None] | None:
    """(length, keys that lead to it, None where they are attributes) of the first array in `value`."""
    shape = getattr(value, "shape", None)
    if shape is not None and not callable(shape):
        try:
            return int(shape[0]), way
        except (TypeError, IndexError, ValueError):
            return None
    if depth == 0:
        return None
    inner: Any
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, (tuple, list)):
        inner = enumerate(value)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        inner, way = vars(value).items(), None
    else:
        return None
    for key, item in inner:
        found = _first_length(item, None if way is None else (*way, key), depth - 1)
        if found is not None:
            return found
    return None


def _by_key(key: str) -> Size:
    def size(batch: Any) -> int:
        try:
            value = batch[key]
        except (KeyError, TypeError, IndexError):
            raise BatchSizeError(f"a batch of type {_describe(batch)} has no key {key!r}; {_WAY_OUT}") from None
        found = _first_length(value, None, 2)
        return len(value) if found is None else found[0]

    return size


def _by_function(function: Callable[[Any], Any]) -> Size:
    def size(batch: Any) -> int | float:
        found = function(batch)
        if type(found) is int or type(found) is float:
            return found
        return plain_count(found, "batch_size")

    return size


def plain_count(value: Any, what: str) -> int | float:
    """A count as a plain number; refuses one that is still on a device, because reading it would wait for the device."""
    if isinstance(value, (int, float)):
        return value
    kind = getattr(getattr(value, "device", None), "type", "cpu")
    if kind != "cpu":
        raise BatchSizeError(f"{what} returned a tensor on {kind}: reading it would wait for the device; use a shape")
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BatchSizeError(f"{what} returned {value!r}, expected a number") from None


def _describe(batch: Any) -> str:
    name = type(batch).__name__
    if isinstance(batch, Mapping):
        return f"{name} with keys {sorted(map(str, batch))[:8]}"
    if isinstance(batch, (tuple, list)):
        return f"{name} of {[type(item).__name__ for item in batch[:4]]}"
    return name
