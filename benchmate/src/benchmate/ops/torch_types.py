"""What operators use of torch, as types: importing and checking this package must not need torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Call = Callable[[], object]
"""A call with its arguments bound: what is timed."""
Arguments = Sequence[object]
"""Positional arguments of an operator: tensors, numbers, lists, whatever its schema says."""
Keywords = dict[str, object]
"""Keyword arguments of an operator."""


class DType(Protocol):
    """An element type (torch.dtype)."""

    is_floating_point: bool
    is_complex: bool
    itemsize: int


class DeviceName(Protocol):
    """A device (torch.device): its kind, such as cuda, and its index where it has one."""

    type: str
    index: int | None


class Storage(Protocol):
    """The memory of a tensor (torch.UntypedStorage), which views share."""

    device: DeviceName

    def data_ptr(self) -> int: ...

    def nbytes(self) -> int: ...

    def clone(self) -> Storage: ...


class Tensor(Protocol):
    """A tensor (torch.Tensor)."""

    shape: Sequence[int]
    dtype: DType
    device: DeviceName
    layout: object
    requires_grad: bool
    is_leaf: bool
    grad: Tensor | None
    grad_fn: object

    def numel(self) -> int: ...

    def item(self) -> float: ...

    def element_size(self) -> int: ...

    def storage_offset(self) -> int: ...

    def size(self) -> Sequence[int]: ...

    def stride(self) -> Sequence[int]: ...

    def untyped_storage(self) -> Storage: ...

    def detach(self) -> Tensor: ...

    def clone(self) -> Tensor: ...

    def double(self) -> Tensor: ...

    def to(self, target: object) -> Tensor: ...

    def clamp(self, low: int, high: int) -> Tensor: ...

    def copy_(self, source: Tensor, *, non_blocking: bool = ...) -> Tensor: ...

    def fill_(self, value: float) -> Tensor: ...

    def zero_(self) -> Tensor: ...

    def new_empty(self, shape: Sequence[int]) -> Tensor: ...

    def requires_grad_(self, value: bool = ...) -> Tensor: ...


class Event(Protocol):
    """An event on the queue of a device (torch.cuda.Event and its like)."""

    def record(self) -> None: ...

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`."""
