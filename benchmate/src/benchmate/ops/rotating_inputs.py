"""Copies of an operator's inputs, so many that a cold call finds its own in no cache: the others were read since."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmate.ops.autograd import tensors_in
from benchmate.ops.device import TorchDevice, free_bytes

MOST_COPIES = 16384  # of inputs so small that more of them would only take time


@dataclass(frozen=True, kw_only=True)
class InputRotation:
    """The same call with each of `len(calls)` copies of its inputs, of `total_bytes` together."""

    calls: Sequence[Callable[[], Any]]
    total_bytes: int


Bind = Callable[[Sequence[Any], dict[str, Any]], Callable[[], Any]]
"""The call with these arguments."""


def rotate_inputs(bind: Bind, args: Sequence[Any], kwargs: dict[str, Any], place: TorchDevice) -> InputRotation | None:
    """Enough copies of the inputs to exceed the last cache level; the first is the inputs themselves.

    None for inputs that exceed it alone, and for those that are not made of plain strided memory. Fewer copies than it takes
    where they would fill half of the device's free memory.
    """
    import torch

    tensors = list(tensors_in([args, kwargs]))
    if any(one.layout is not torch.strided or one.device.type != place.kind for one in tensors):
        return None
    each = sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())
    if not 0 < each <= place.cache_bytes:
        return None
    free = free_bytes(str(place.device))
    most = MOST_COPIES if free is None else min(MOST_COPIES, free // 2 // each)
    count = max(1, min(most, math.ceil((place.cache_bytes + 1) / each)))
    calls = [bind(args, kwargs), *(bind(*_copied(args, kwargs)) for _ in range(count - 1))]
    return InputRotation(calls=calls, total_bytes=count * each)


def _copied(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments in memory of their own; what shares memory, as views do, shares it in the copy too."""
    import torch

    storages: dict[int, Any] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            if storage.data_ptr() not in storages:
                storages[storage.data_ptr()] = storage.clone()
            own = storages[storage.data_ptr()]
            made = torch.empty(0, dtype=value.dtype, device=value.device)
            made.set_(own, value.storage_offset(), value.size(), value.stride())
            return made.requires_grad_(value.requires_grad)
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(map(copied, value))
        if isinstance(value, list):
            return list(map(copied, value))
        if isinstance(value, dict):
            return {key: copied(item) for key, item in value.items()}
        return value

    return copied(list(args)), copied(kwargs)
