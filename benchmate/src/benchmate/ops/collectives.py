"""Collectives of torch.distributed over gloo or NCCL, started by torchrun; bus and algorithm bandwidth."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from benchmate.ops.errors import OperatorFailed, OperatorSkipped, OpsError
from benchmate.ops.interface import OperatorInterface, Passes

# name -> share of the size that crosses the bus per rank, with n ranks (the convention of NCCL's tests). The size is that of
# the input, for an all-gather that of the output.
BUS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather_into_tensor": lambda n: (n - 1) / n,
    "reduce_scatter_tensor": lambda n: (n - 1) / n,
    "all_to_all_single": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1.0,
    "reduce": lambda _: 1.0,
    "barrier": lambda _: 0.0,
}


class CollectiveOp(OperatorInterface):
    """One collective on the tensor that each rank makes; all ranks take the same samples, each the slowest rank's."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in BUS:
            raise OpsError(f"unknown operator 'torch.distributed.{name}'; there are {', '.join(BUS)}")
        if "RANK" not in os.environ:
            raise OperatorSkipped(
                f"torch.distributed.{name} needs ranks: torchrun --nproc-per-node 2 -m benchmate.ops -c FILE"
            )
        self.name = name
        self._size = 0
        self._agreement: Any = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.passes(args, kwargs).forward()

    def passes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Passes:
        import torch.distributed as dist

        self._join()
        ranks = dist.get_world_size()
        values = [one.detach() for one in args]
        if self.name != "barrier" and not values:
            raise OperatorFailed(f"{self.name} takes one tensor")
        one: Any = values[0] if values else None
        if self.name in ("reduce_scatter_tensor", "all_to_all_single") and one.shape[:1].numel() % ranks:
            raise OperatorFailed(
                f"{self.name}: the first dimension, {one.shape[0]}, is not a multiple of {ranks} ranks"
            )
        function = getattr(dist, self.name)
        if self.name == "barrier":
            call, size = functools.partial(function), 0
        elif self.name == "all_gather_into_tensor":
            out = one.new_empty((ranks * one.shape[0], *one.shape[1:]))
            call, size = functools.partial(function, out, one, **kwargs), out.numel() * out.element_size()
        elif self.name == "reduce_scatter_tensor":
            out = one.new_empty((one.shape[0] // ranks, *one.shape[1:]))
            call, size = functools.partial(function, out, one, **kwargs), one.numel() * one.element_size()
        elif self.name == "all_to_all_single":
            call = functools.partial(function, one.clone(), one, **kwargs)
            size = one.numel() * one.element_size()
        else:
            more = {"src": 0} if self.name == "broadcast" else {"dst": 0} if self.name == "reduce" else {}
            # Sums that are summed again grow without bound; zeros stay, and links do not care what they carry.
            call = functools.partial(function, one.zero_(), **{**more, **kwargs})
            size = one.numel() * one.element_size()
        self._size = size
        return Passes(
            forward=call,
            make_gradient=lambda _: "a collective has no backward pass",
            backward=lambda: None,
            moved_bytes=size,
        )

    def agree(self, value: float) -> float:
        """The largest of what the ranks say."""
        import torch.distributed as dist

        self._agreement.fill_(value)
        dist.all_reduce(self._agreement, op=dist.ReduceOp.MAX)
        return float(self._agreement)

    def bandwidths(self, seconds: float) -> dict[str, float]:
        """Bytes a second: size by time, and what crosses the bus by time; with the number of ranks."""
        import torch.distributed as dist

        ranks = dist.get_world_size()
        if not self._size:
            return {"ranks": ranks}
        by_size = self._size / seconds
        return {"ranks": ranks, "alg_byte_per_s": by_size, "bus_byte_per_s": by_size * BUS[self.name](ranks)}

    def _join(self) -> None:
        import torch
        import torch.distributed as dist

        is_cuda = self.device.startswith("cuda")
        if not dist.is_initialized():
            dist.init_process_group("nccl" if is_cuda else "gloo")
        if self._agreement is None:
            # On CUDA each rank has its device by now (`-d cuda` is cuda:<local rank>).
            self._agreement = torch.zeros((), dtype=torch.float64, device=self.device)


def leave() -> None:
    """Take the process group down, where one was made."""
    import sys

    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
