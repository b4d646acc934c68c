"""The number of items in a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchmate.errors import BatchSizeError

Size = Callable[[Any], "int | float"]
BatchSize = int | float | str | Callable[[Any], object] | None

_HINT = "give batch_size=: a number, a key of the batch, or a function of the batch"


def size_function(batch_size: BatchSize) -> tuple[Size | None, int | float]:
    """Return (function, 0), which computes the size of each batch, or (None, size) when all batches have the same."""
    if isinstance(batch_size, bool):
        raise BatchSizeError(f"batch_size={batch_size!r}: {_HINT}")
    if isinstance(batch_size, (int, float)):
        return None, batch_size
    if batch_size is None:
        return BatchSizeGuess().of, 0
    if isinstance(batch_size, str):
        return _by_key(batch_size), 0
    if callable(batch_size):
        return _by_function(batch_size), 0
    raise BatchSizeError(f"batch_size={batch_size!r}: {_HINT}")


class BatchSizeGuess:
    """The first dimension of the first tensor or array in a batch.

    Looks into tuples, lists and mappings, and into the attributes of a data class or other object. The keys that led to it in one
    batch are tried first in the next. Raise BatchSizeError when there is none: a list of strings may be anything.
    """

    __slots__ = ("_key", "_path")

    def __init__(self) -> None:
        self._key: object = None
        """The path where it is a single key, as it mostly is: walking a tuple costs as much again as the length."""
        self._path: tuple[object, ...] | None = None

    def of(self, batch: Any) -> int:
        """Return the length of the batch."""
        length: int
        if self._key is not None:
            try:
                length = batch[self._key].shape[0]
                return length
            except (AttributeError, TypeError, LookupError):
                self._key = None
        if self._path is not None:
            value = batch
            try:
                for key in self._path:
                    value = value[key]
                length = value.shape[0]
                return length
            except (AttributeError, TypeError, LookupError):
                self._path = None
        result = _first_length(batch, (), 4)
        if result is None:
            raise BatchSizeError(f"cannot tell how many items are in a batch of type {_describe(batch)}; {_HINT}")
        length, self._path = result
        self._key = self._path[0] if self._path is not None and len(self._path) == 1 else None
        return length


def _first_length(
    value: object, path: tuple[object, ...] | None, depth: int
) -> tuple[int, tuple[object, ...] | None] | None:
    """Return the length of the first array in `value` and the keys that lead to it, None where they are attributes."""
    shape = getattr(value, "shape", None)
    if shape is not None and not callable(shape):
        try:
            return int(shape[0]), path
        except (TypeError, IndexError, ValueError):
            return None
    if depth == 0:
        return None
    inner: Iterable[tuple[object, object]]
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, (tuple, list)):
        inner = enumerate(value)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        inner, path = vars(value).items(), None
    else:
        return None
    for key, item in inner:
        result = _first_length(item, None if path is None else (*path, key), depth - 1)
        if result is not None:
            return result
    return None


def _by_key(key: str) -> Size:
    def size(batch: Any) -> int:
        try:
            value = batch[key]
        except (KeyError, TypeError, IndexError):
            raise BatchSizeError(f"a batch of type {_describe(batch)} has no key {key!r}; {_HINT}") from None
        result = _first_length(value, None, 2)
        return len(value) if result is None else result[0]

    return size


def _by_function(function: Callable[[Any], object]) -> Size:
    def size(batch: object) -> int | float:
        number = function(batch)
        if type(number) is int or type(number) is float:
            return number
        return plain_count(number, "batch_size")

    return size


def plain_count(value: object, what: str) -> int | float:
    """Return a count as a plain number; refuse one that is still on a device, because reading it would wait for the device."""
    if isinstance(value, (int, float)):
        return value
    kind = getattr(getattr(value, "device", None), "type", "cpu")
    if kind != "cpu":
        raise BatchSizeError(f"{what} returned a tensor on {kind}: reading it would wait for the device; use a shape")
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]  # a zero-dimensional array, say
    except (TypeError, ValueError):
        raise BatchSizeError(f"{what} returned {value!r}, expected a number") from None


def _describe(batch: object) -> str:
    name = type(batch).__name__
    if isinstance(batch, Mapping):
        return f"{name} with keys {sorted(map(str, batch))[:8]}"
    if isinstance(batch, (tuple, list)):
        return f"{name} of {[type(item).__name__ for item in batch[:4]]}"
    return name
