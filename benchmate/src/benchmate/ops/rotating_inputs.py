"""Copies of an operator's inputs, so many that a cold call finds its own in no cache: the others were read since."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmate.ops.device import TorchDevice, free_bytes
from benchmate.ops.interface import Bind, map_tensors, tensors_in
from benchmate.ops.types import Arguments, Call, Keywords, Storage, Tensor

MAX_COPIES = 16384  # of inputs so small that more of them would only take time


@dataclass(frozen=True, kw_only=True)
class InputRotation:
    """The same call with each of `len(calls)` copies of its inputs, of `total_bytes` together."""

    calls: Sequence[Call]
    total_bytes: int


def rotate_inputs(bind: Bind, args: Arguments, kwargs: Keywords, device: TorchDevice) -> InputRotation | None:
    """Return enough copies of the inputs to exceed the last cache level; the first is the inputs themselves.

    None for inputs that exceed it alone, and for those that are not made of plain strided memory. Fewer copies than it takes
    where they would fill half of the device's free memory.
    """
    import torch

    tensors = list(tensors_in([args, kwargs]))
    if any(tensor.layout is not torch.strided or tensor.device.type != device.kind for tensor in tensors):
        return None
    storages = [tensor.untyped_storage() for tensor in tensors]
    input_bytes = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    if not 0 < input_bytes <= device.cache_bytes:
        return None
    free = free_bytes(str(device.device))
    limit = MAX_COPIES if free is None else min(MAX_COPIES, free // 2 // input_bytes)
    count = max(1, min(limit, math.ceil((device.cache_bytes + 1) / input_bytes)))
    calls = [bind(args, kwargs), *(bind(*_copied(args, kwargs)) for _ in range(count - 1))]
    return InputRotation(calls=calls, total_bytes=count * input_bytes)


def _copied(args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords]:
    """Return the arguments in memory of their own; what shares memory, as views do, shares it in the copy too."""
    import torch

    storages: dict[int, Storage] = {}

    def copied(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            storages[storage.data_ptr()] = storage.clone()
        copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        copy.set_(storages[storage.data_ptr()], tensor.storage_offset(), tensor.size(), tensor.stride())
        return copy.requires_grad_(tensor.requires_grad)

    return map_tensors(list(args), copied), map_tensors(kwargs, copied)
