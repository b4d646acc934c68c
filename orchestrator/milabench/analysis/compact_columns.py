"""Columns of millions of observations in few bytes: what repeats is kept once, what follows from another column not at all."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

_FREE_RUNS = 64
_RECORDS_A_RUN = 16  # below so many a run, runs cost more than they save


class Runs(Sequence[float]):
    """Numbers that mostly repeat: runs of equal ones, or one by one where they do not."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._ends = array("q")
        self._single: array[float] | None = None

    def extend(self, values: Sequence[float]) -> None:
        """Append numbers; any that are exact as floats."""
        if self._single is not None:
            self._single.extend(values)
            return
        if values and self._values and values.count(self._values[-1]) == len(values):
            self._ends[-1] += len(values)
            return
        end = len(self)
        for value in values:
            end += 1
            if self._values and value == self._values[-1]:
                self._ends[-1] = end
            else:
                self._values.append(value)
                self._ends.append(end)
        if len(self._values) > _FREE_RUNS + end // _RECORDS_A_RUN:
            self._single = array("d", self)
            self._values.clear()
            self._ends = array("q")

    @property
    def constant(self) -> float | None:
        """The value that all of them have; None where they differ, or there is none."""
        return self._values[0] if len(self._values) == 1 else None

    def runs(self) -> Iterator[tuple[range, float]]:
        """Yield the index range of each run with its number; single numbers are runs of length one."""
        if self._single is not None:
            yield from ((range(index, index + 1), value) for index, value in enumerate(self._single))
            return
        start = 0
        for end, value in zip(self._ends, self._values, strict=True):
            yield range(start, end), value
            start = end

    def __len__(self) -> int:
        if self._single is not None:
            return len(self._single)
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[float]:
        if self._single is not None:
            return iter(self._single)
        return (value for indices, value in self.runs() for _ in indices)

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[float]: ...
    def __getitem__(self, index: int | slice) -> float | Sequence[float]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if self._single is not None:
            return self._single[index]
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._values[bisect_right(self._ends, index)]


class Derived(Sequence[Any]):
    """A column that is computed from others, entry by entry, when it is looked at."""

    def __init__(self, length: int, entry: Callable[[int], Any]) -> None:
        self._length = length
        self._entry = entry

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return map(self._entry, range(self._length))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._entry(position) for position in range(*index.indices(self._length))]
        index = index + self._length if index < 0 else index
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._entry(index)
