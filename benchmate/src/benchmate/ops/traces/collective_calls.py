"""Collectives of a trace as calls of torch.distributed, by every name under which they are recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from benchmate.ops.types import Tensor

Named = Mapping[str, Any]
"""Arguments of a collective by the names of its schema: tensors, lists of them, ranks, sizes."""


class PendingWork(Protocol):
    """A collective on its way (torch.distributed.Work)."""

    def wait(self) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The ranks that take part: a process group of torch.distributed (`dist`), None for all ranks."""

    dist: ModuleType
    group: object | None = None

    def start(self, collective: str, *args: object, **options: object) -> PendingWork:
        """Start a collective by torch's name of it, without waiting."""
        work: PendingWork = getattr(self.dist, collective)(*args, group=self.group, async_op=True, **options)
        return work

    def global_rank(self, rank: int) -> int:
        """Return the number among all ranks of a rank of this group."""
        return rank if self.group is None else int(self.dist.get_global_rank(self.group, rank))

    def start_functional(self, name: str, named: Named) -> tuple[list[PendingWork], Tensor]:
        """Start a functional collective, which returns its result: (what to wait for, that result)."""
        if name == "wait_tensor":
            return [], named["tensor"]
        given: Tensor = named["input"] if "input" in named else named["tensor"]
        if name in ("all_reduce", "all_reduce_", "broadcast", "broadcast_"):
            out = given if name.endswith("_") else given.clone()
            if name.startswith("all_reduce"):
                return [self.start("all_reduce", out)], out
            return [self.start("broadcast", out, self.global_rank(0))], out
        rows, shape = given.shape[0], given.shape[1:]
        if name == "all_to_all_single":
            splits = [list(named["output_split_sizes"]), list(named["input_split_sizes"])]
            out = given.new_empty((sum(splits[0]), *shape))
            return [self.start(name, out, given, *splits)], out
        ranks = self.dist.get_world_size(self.group)
        out = given.new_empty((rows * ranks if name == "all_gather_into_tensor" else rows // ranks, *shape))
        return [self.start(name, out, given)], out


Collective = Callable[[Ranks, Named], list[PendingWork]]


def _all_reduce(ranks: Ranks, named: Named) -> list[PendingWork]:
    # Which reduction it was is not in the trace; all move the same bytes.
    return [ranks.start("all_reduce", tensor) for tensor in named["tensors"]]


def _all_gather(ranks: Ranks, named: Named) -> list[PendingWork]:
    pairs = zip(named["output_tensors"], named["input_tensors"], strict=True)
    return [ranks.start("all_gather", list(outs), tensor) for outs, tensor in pairs]


def _all_gather_lists(ranks: Ranks, named: Named) -> list[PendingWork]:
    outs_of_input = zip(*named["output_lists"], strict=True)
    pairs = zip(outs_of_input, named["input_list"], strict=True)
    return [ranks.start("all_gather", list(outs), tensor) for outs, tensor in pairs]


def _all_gather_base(ranks: Ranks, named: Named) -> list[PendingWork]:
    return [ranks.start("all_gather_into_tensor", named["output_tensor"], named["input_tensor"])]


def _all_gather_coalesced(ranks: Ranks, named: Named) -> list[PendingWork]:
    pairs = zip(named["outputs"], named["inputs"], strict=True)
    return [ranks.start("all_gather_into_tensor", out, tensor) for out, tensor in pairs]


def _reduce_scatter(ranks: Ranks, named: Named) -> list[PendingWork]:
    pairs = zip(named["output_tensors"], named["input_tensors"], strict=True)
    return [ranks.start("reduce_scatter", out, list(tensors)) for out, tensors in pairs]


def _reduce_scatter_base(ranks: Ranks, named: Named) -> list[PendingWork]:
    return [ranks.start("reduce_scatter_tensor", named["output_tensor"], named["input_tensor"])]


def _reduce_scatter_coalesced(ranks: Ranks, named: Named) -> list[PendingWork]:
    pairs = zip(named["outputs"], named["inputs"], strict=True)
    return [ranks.start("reduce_scatter_tensor", out, tensor) for out, tensor in pairs]


def _broadcast(ranks: Ranks, named: Named) -> list[PendingWork]:
    root = ranks.global_rank(named["root_rank"])
    return [ranks.start("broadcast", tensor, root) for tensor in named["tensors"]]


def _reduce(ranks: Ranks, named: Named) -> list[PendingWork]:
    root = ranks.global_rank(named["root_rank"])
    return [ranks.start("reduce", tensor, root) for tensor in named["tensors"]]


def _gather(ranks: Ranks, named: Named) -> list[PendingWork]:
    root = ranks.global_rank(named["root_rank"])
    outs = list(named["output_tensors"][0]) if ranks.dist.get_rank() == root else None
    return [ranks.start("gather", named["input_tensors"][0], outs, root)]


def _scatter(ranks: Ranks, named: Named) -> list[PendingWork]:
    root = ranks.global_rank(named["root_rank"])
    tensors = list(named["input_tensors"][0]) if ranks.dist.get_rank() == root else None
    return [ranks.start("scatter", named["output_tensors"][0], tensors, root)]


def _all_to_all_single(ranks: Ranks, named: Named) -> list[PendingWork]:
    splits = [list(named[f"{side}_split_sizes"]) or None for side in ("output", "input")]
    return [ranks.start("all_to_all_single", named["output"], named["input"], *splits)]


def _all_to_all(ranks: Ranks, named: Named) -> list[PendingWork]:
    return [ranks.start("all_to_all", list(named["output_tensors"]), list(named["input_tensors"]))]


def _barrier(ranks: Ranks, _: Named) -> list[PendingWork]:
    return [ranks.start("barrier")]


def _send(ranks: Ranks, named: Named) -> list[PendingWork]:
    receiver = ranks.global_rank(named["dst"])
    return [ranks.dist.isend(tensor, receiver, group=ranks.group, tag=named["tag"]) for tensor in named["tensors"]]


def _receive(ranks: Ranks, named: Named) -> list[PendingWork]:
    sender = ranks.global_rank(named["src"]) if "src" in named else None
    return [ranks.dist.irecv(tensor, sender, group=ranks.group, tag=named["tag"]) for tensor in named["tensors"]]


# Names of c10d's operators, of the entries `record_param_comms` and of functional collectives.
_NAMES: tuple[tuple[Collective, str], ...] = (
    (_all_reduce, "allreduce_ allreduce_coalesced_ allreduce all_reduce all_reduce_ allreduce_coalesced"),
    (_all_gather, "allgather_"),
    (_all_gather_lists, "allgather_coalesced_"),
    (_all_gather_base, "_allgather_base_ _allgather_base allgather_base all_gather allgather all_gather_into_tensor"),
    (_all_gather_coalesced, "allgather_into_tensor_coalesced_"),
    (_reduce_scatter, "reduce_scatter_"),
    (_reduce_scatter_base, "_reduce_scatter_base_ _reduce_scatter_base reduce_scatter reduce_scatter_tensor"),
    (_reduce_scatter_coalesced, "reduce_scatter_tensor_coalesced_"),
    (_broadcast, "broadcast_ broadcast"),
    (_reduce, "reduce_ reduce"),
    (_gather, "gather_"),
    (_scatter, "scatter_"),
    (_all_to_all_single, "alltoall_base_ all_to_all all_to_allv alltoall_base all_to_all_single"),
    (_all_to_all, "alltoall_"),
    (_barrier, "barrier wait_tensor"),  # a wait of functional collectives is carried out by start_functional
    (_send, "send"),
    (_receive, "recv_ recv_any_source_"),
)
COLLECTIVES = {name: collective for collective, names in _NAMES for name in names.split()}
