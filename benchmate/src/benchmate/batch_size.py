"""The number of items in a batch."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from benchmate.errors import BatchSizeError

Size = Callable[[Any], "int | float"]
BatchSize = int | float | str | Callable[[Any], object] | None

LOOKED_AT = 64
"""Things of a list that are looked at."""
MOST_CHANNELS, MOST_COLUMNS = 4, 3
"""Maxima: channels of an image that begins with them, and arrays of equal shape (inputs, masks and targets)."""

_HINT = "Give batch_size=: a number, a key of the batch, or a function of the batch"


def size_function(
    batch_size: BatchSize, loader: object = None, message: Callable[[str], object] = str
) -> tuple[Size | None, int | float]:
    """Return (function, 0), which computes the size of each batch, or (None, size) when all batches have the same.

    `loader` yields the batches, and may know their size. `message` gets a line where its size is used.
    """
    if isinstance(batch_size, (int, float)) and not isinstance(batch_size, bool):
        return None, batch_size
    if batch_size is None:
        return BatchSizeGuess(loader, message).of, 0
    if isinstance(batch_size, str):
        return _by_key(batch_size), 0
    if callable(batch_size):
        return _by_function(batch_size), 0
    raise BatchSizeError(f"batch_size={batch_size!r}: {_HINT}")


class BatchSizeGuess:
    """The first dimension of the first tensor or array in a batch, or the number of tensors in a list.

    Looks into tuples, lists and mappings, and into the attributes of a data class or other object. The keys that led to it in one
    batch are tried first in the next. Where torch's loader knows how large its batches are, whatever has that size in the first
    batch is taken, else its own number. Raise BatchSizeError where there is nothing to go by, as in a list of strings, or where
    there are two ways to read a batch, as a list of tensors of different lengths.
    """

    __slots__ = ("_count", "_key", "_loader", "_message", "_path", "_samples", "_size")

    def __init__(self, loader: object = None, message: Callable[[str], object] = str) -> None:
        self._loader, self._message = loader, message
        self._key: object = None
        """The path where it is a single key, as it mostly is: walking a tuple costs as much again as the length."""
        self._path: tuple[object, ...] | None = None
        self._size = self._samples = self._count = 0
        """Of a loader whose word is taken: the size of its batches, its samples, and how many of them have been seen."""

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
                shape = getattr(value, "shape", None)
                return len(value) if shape is None else shape[0]
            except (AttributeError, TypeError, LookupError):
                self._path = None
        if self._size:
            length = min(self._size, self._samples - self._count) if self._samples > self._count else self._size
            self._count += length
            return length
        return self._first(batch)

    def _first(self, batch: Any) -> int:
        """Find the array that gives the size."""
        loader, self._loader = self._loader, None
        known, samples = (0, 0) if loader is None else _told_by(loader)
        sizes = list(_sizes(batch, (), 4) if known else islice(_sizes(batch, (), 4), 1))
        found = next((size for size in sizes if size.is_of(min(known, samples or known))), None)
        best = found or next(iter(sizes), None)
        if known and found is None and self._takes_loader(best, known, samples):
            return self.of(batch)
        if best is None:
            raise BatchSizeError(f"cannot tell how many items are in a batch of type {_describe(batch)}. {_HINT}")
        if found is None and not best.is_clear:
            raise BatchSizeError(
                f"{best.length} items or another number may be in a batch of type {_describe(batch)}. {_HINT}"
            )
        self._path = best.path
        self._key = best.path[0] if best.path and len(best.path) == 1 and not best.is_list else None
        return best.length

    def _takes_loader(self, best: _Size | None, known: int, samples: int) -> bool:
        """Return whether the loader's size is taken, where no tensor of its first batch that can be found again has it."""
        if best is not None and best.length == min(known, samples or known):
            return False
        guess = "it has no tensors" if best is None else "its first tensor has another number"
        is_taken = best is None or known > 1
        self._message(
            f"batch_size: the loader says {known}, of its first batch {guess}. Used: "
            f"{'the loader' if is_taken else 'the tensor'}, unless the voirfile sets batch_size="
        )
        if is_taken:
            self._size, self._samples = known, samples
        return is_taken


def _told_by(loader: Any) -> tuple[int, int]:
    """Return the size of the batches of torch's loader, its iterator or a progress bar over it, and its samples: 0 where unknown.

    A sampler that forms batches in another way than torch's own is not asked.
    """
    loader = getattr(loader, "iterable", loader)  # that of tqdm
    sampler: Any = getattr(loader, "_index_sampler", None)
    if sampler is None:  # as such: to be true or false it would be asked for its length, which may be unknown
        sampler = getattr(loader, "batch_sampler", None)
    torch_data = sys.modules.get("torch.utils.data")
    # A rank of accelerate has its share of the batches, or of each batch, the last of them filled up.
    is_shared = type(sampler) is getattr(sys.modules.get("accelerate.data_loader"), "BatchSamplerShard", None)
    ranks = sampler.num_processes if is_shared and sampler.split_batches else 1
    if is_shared:
        sampler = sampler.batch_sampler
    if torch_data is None or type(sampler) is not torch_data.BatchSampler:
        return 0, 0
    known: int = sampler.batch_size // ranks
    try:
        return known, 0 if is_shared or sampler.drop_last else len(sampler.sampler)
    except Exception:  # an iterable data set has no end, and a sampler of the program's may raise anything to say so
        return known, 0


class _Size(NamedTuple):
    """A size that a batch may have, and the keys that lead to it, None where they are attributes."""

    length: int
    path: tuple[object, ...] | None
    is_clear: bool = True
    """Whether there is no other way to read the batch."""
    is_list: bool = False
    """Whether it is the number of things in a list, not a dimension."""

    def is_of(self, length: int) -> bool:
        """Whether it is this length, which is above zero, and its keys lead to it in every batch."""
        return length > 0 and self.length == length and self.path is not None


def _sizes(value: Any, path: tuple[object, ...] | None, depth: int) -> Iterator[_Size]:
    """Yield the sizes that a batch may have, the likeliest first."""
    shape = _shape(value)
    if shape is not None and not isinstance(value, Mapping):  # torch's TensorDict is both
        if shape:
            yield _Size(shape[0], path)
    elif depth == 0 or isinstance(value, (str, bytes, type)):
        return
    elif isinstance(value, (tuple, list)):
        yield from _sizes_of_list(value, path, depth)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _sizes(item, None if path is None else (*path, key), depth - 1)
    elif hasattr(value, "__dict__"):
        for item in vars(value).values():
            yield from _sizes(item, None, depth - 1)


def _sizes_of_list(value: Sequence[Any], path: tuple[object, ...] | None, depth: int) -> Iterator[_Size]:
    """Yield the sizes of a list, of columns (inputs and targets), or of samples: then it is a batch of that number."""
    shapes = [shape for item in value[:LOOKED_AT] if (shape := _shape(item))]
    whole = _Size(len(value), path, is_list=True)
    inner = [
        list(_sizes(item, None if path is None else (*path, index), depth - 1))
        for index, item in enumerate(value[:LOOKED_AT])
    ]
    if shapes:
        arrays = [sizes[0] for item, sizes in zip(value, inner, strict=False) if _shape(item)]
        is_nested = bool(path) and len(shapes) == len(inner)
        if _are_columns(shapes):
            yield from arrays
        elif is_nested:
            yield whole
        yield from (size._replace(is_clear=False) for size in (*arrays, whole))
    elif len(value) > 1 and all(inner) and not any(isinstance(item, (tuple, list)) for item in value):
        yield whole  # of mappings, or objects
    elif sum(map(bool, inner)) > 1:
        yield from (sizes[0]._replace(is_clear=False) for sizes in inner if sizes)
        yield whole._replace(is_clear=False)
    yield from chain.from_iterable(inner)


def _are_columns(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether arrays that are together in a batch have an item in each row, as inputs and targets have.

    Arrays of equal length may also be images, with their channels first, or many samples of one shape.
    """
    has_images = len(shapes) > 1 and all(len(shape) == 3 and shape[0] <= MOST_CHANNELS for shape in shapes)
    are_alike = len(shapes) > MOST_COLUMNS and len(set(shapes)) == 1
    return len({shape[0] for shape in shapes}) == 1 and not has_images and not are_alike


def _shape(value: object) -> tuple[int, ...] | None:
    """Return the shape of an array, () where it has no first dimension. None for anything else."""
    try:
        shape: Any = getattr(value, "shape", None)
        if shape is None or callable(shape):
            return None
        # Only the first: another one of torch's nested tensors is no number, as it differs from sample to sample.
        return (int(shape[0]), *shape[1:]) if len(shape) else ()
    except Exception:  # a lazy array, or a nested tensor of torch, raises errors of every class
        return ()


def _by_key(key: str) -> Size:
    def size(batch: Any) -> int:
        try:
            value = batch[key]
        except (KeyError, TypeError, IndexError):
            raise BatchSizeError(f"a batch of type {_describe(batch)} has no key {key!r}. {_HINT}") from None
        size = None if isinstance(value, (tuple, list)) else next(_sizes(value, None, 2), None)
        return len(value) if size is None else size.length

    return size


def _by_function(function: Callable[[Any], object]) -> Size:
    def size(batch: object) -> int | float:
        number = function(batch)
        return number if type(number) is int else plain_count(number, "batch_size")

    return size


def plain_count(value: object, what: str) -> int | float:
    """Return a count as a plain number.

    Refuse a count that is still on a device, because reading it would wait for the device.
    """
    if isinstance(value, (int, float)) and math.isfinite(value):
        return value
    kind = getattr(getattr(value, "device", None), "type", "cpu")
    if kind != "cpu":
        raise BatchSizeError(f"{what} returned a tensor on {kind}: reading it would wait for the device. Use a shape")
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]  # a zero-dimensional array, say
    except Exception:  # whatever the class raises
        raise BatchSizeError(f"{what} returned {reprlib.repr(value)}, expected a number") from None


def _describe(batch: object) -> str:
    name = type(batch).__name__
    if isinstance(batch, Mapping):
        return f"{name} with keys {sorted(map(str, batch.keys()))[:8]}"
    if isinstance(batch, (tuple, list)):
        return f"{name} of {[type(item).__name__ for item in batch[:4]]}"
    return name
