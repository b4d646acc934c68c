"""Collectives of torch.distributed over gloo or NCCL, started by torchrun. Bus and algorithm bandwidth."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import cast

from benchmate.frameworks import process_group
from benchmate.ops.base import Arguments, Keywords, OperatorFailed, OperatorSkipped, OpsError, Tensor
from benchmate.ops.interface import BoundOp, Passes, forward_only

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


class CollectiveOp(BoundOp):
    """A collective on the tensor that each rank makes. All ranks take the same samples, each the slowest rank's."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in BUS:
            raise OpsError(f"unknown operator 'torch.distributed.{name}'. Known: {', '.join(BUS)}")
        if "RANK" not in os.environ:
            raise OperatorSkipped(
                f"torch.distributed.{name} needs ranks: torchrun --nproc-per-node 2 -m benchmate.ops -c FILE"
            )
        self.name = name
        self._size = 0
        self._agreed: Tensor | None = None

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        import torch.distributed as dist

        self._join()
        if self.name != "barrier" and not args:
            raise OperatorFailed(f"{self.name} takes a single tensor")
        reason = "a collective has no backward pass"
        function = getattr(dist, self.name)
        if self.name == "barrier":
            self._size = 0
            return forward_only(functools.partial(function), reason, moved_bytes=0)
        tensor, ranks = cast("Tensor", args[0]).detach(), dist.get_world_size()
        sized = tensor  # what the size of the collective is counted by
        rows, shape = (tensor.shape[0], tensor.shape[1:]) if tensor.shape else (0, ())
        if self.name in ("reduce_scatter_tensor", "all_to_all_single") and rows % ranks:
            raise OperatorFailed(f"{self.name}: the first dimension, {rows}, is not a multiple of {ranks} ranks")
        if self.name == "all_gather_into_tensor":
            sized = tensor.new_empty((ranks * rows, *shape))
            call = functools.partial(function, sized, tensor, **kwargs)
        elif self.name == "reduce_scatter_tensor":
            call = functools.partial(function, tensor.new_empty((rows // ranks, *shape)), tensor, **kwargs)
        elif self.name == "all_to_all_single":
            call = functools.partial(function, tensor.clone(), tensor, **kwargs)
        else:
            root = {"broadcast": {"src": 0}, "reduce": {"dst": 0}}.get(self.name, {})
            # Sums that are summed again grow without bound; zeros stay, and links do not care what they carry.
            call = functools.partial(function, tensor.zero_(), **{**root, **kwargs})
        self._size = sized.numel() * sized.element_size()
        return forward_only(call, reason, moved_bytes=self._size)

    def agree(self, value: float) -> float:
        import torch.distributed as dist

        agreed = self._agreed
        assert agreed is not None, "passes first"
        # One tensor for all samples: allocating one for each would disturb what is measured.
        agreed.fill_(value)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
        return agreed.item()

    def bandwidths(self, seconds: float) -> dict[str, float]:
        """Return bytes a second: size by time, and bus traffic by time. With the number of ranks."""
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
        if self._agreed is None:
            # On CUDA each rank has its device by now (`-d cuda` is cuda:<local rank>).
            self._agreed = torch.zeros((), dtype=torch.float64, device=self.device)


def leave() -> None:
    """Take the process group down, where it was made."""
    dist = process_group()
    if dist is not None:
        dist.barrier()
        dist.destroy_process_group()
