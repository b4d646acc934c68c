"""Copies between host and device memory, and within the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmate.ops.errors import OperatorFailed, OperatorSkipped
from benchmate.ops.interface import OperatorInterface, Passes


class CopyOp(OperatorInterface):
    """Copies its tensor argument in one direction; `pinned` (true) says whether the host's side is page-locked."""

    def __init__(self, direction: str) -> None:
        super().__init__()
        self.direction = direction

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.passes(args, kwargs).forward()

    def passes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Passes:
        import torch

        pinned = bool(kwargs.pop("pinned", True))
        if len(args) != 1 or kwargs:
            raise OperatorFailed(f"copy.{self.direction} takes one tensor and pinned=true|false")
        source = args[0].detach()
        size = source.numel() * source.element_size()
        if self.direction == "device_to_device":
            target, moved = torch.empty_like(source), 2 * size  # read and written
        elif source.device.type == "cpu":
            raise OperatorSkipped(
                f"copy.{self.direction} needs an accelerator; on a CPU there is copy.device_to_device"
            )
        else:
            host = torch.empty(source.shape, dtype=source.dtype, pin_memory=pinned)
            host.copy_(source)
            source, target = (host, source) if self.direction == "host_to_device" else (source, host)
            moved = size
        # Page-locked memory is copied by the device on its own, so the host does not wait.
        return Passes(
            forward=lambda: target.copy_(source, non_blocking=pinned),
            make_gradient=lambda _: "a copy has no backward pass here",
            backward=lambda: None,
            moved_bytes=moved,
        )
