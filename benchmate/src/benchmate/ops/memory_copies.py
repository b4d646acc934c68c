"""Copies between host and device memory, and within the device."""

from __future__ import annotations

from typing import Any, cast

from benchmate.ops.errors import OperatorFailed, OperatorSkipped
from benchmate.ops.interface import OperatorInterface, Passes, forward_only
from benchmate.ops.torch_types import Arguments, Keywords, Tensor


class CopyOp(OperatorInterface):
    """Copies its tensor argument in one direction; `pinned` (true) says whether the host's side is page-locked."""

    def __init__(self, direction: str) -> None:
        super().__init__()
        self.direction = direction

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.passes(args, kwargs).forward()

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        import torch

        pinned = bool(kwargs.pop("pinned", True))
        if len(args) != 1 or kwargs:
            raise OperatorFailed(f"copy.{self.direction} takes one tensor and pinned=true|false")
        source = cast("Tensor", args[0]).detach()
        moved_bytes = source.numel() * source.element_size()
        if self.direction == "device_to_device":
            target: Tensor = torch.empty_like(source)
            moved_bytes *= 2  # read and written
        elif source.device.type == "cpu":
            raise OperatorSkipped(
                f"copy.{self.direction} needs an accelerator; on a CPU there is copy.device_to_device"
            )
        else:
            host: Tensor = torch.empty(source.shape, dtype=source.dtype, pin_memory=pinned)
            host.copy_(source)
            source, target = (host, source) if self.direction == "host_to_device" else (source, host)
        # Page-locked memory is copied by the device on its own, so the host does not wait.
        return forward_only(
            lambda: target.copy_(source, non_blocking=pinned), "a copy has no backward pass here", moved_bytes
        )
