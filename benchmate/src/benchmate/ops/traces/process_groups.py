"""Process groups and collectives of a trace, carried out over gloo or NCCL with as many ranks as were recorded."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from benchmate.ops.errors import OperatorFailed, OpsError
from benchmate.ops.traces.graph import Graph
from benchmate.ops.traces.schema import Node, Trace

INIT = "## process_group:init ##"
NO_WORK = ("init", "wait")  # entries of NCCL's that move nothing
TIMEOUT_S = 300


def recorded_groups(trace: Trace) -> dict[str, dict[str, Any]]:
    """The process groups that a trace declares, by name: {"ranks": [...], "group_size": n, ...}; the last word of each."""
    found: dict[str, dict[str, Any]] = {}
    for node in trace.nodes:
        if node.name != INIT or not node.inputs or not isinstance(node.inputs[0], str):
            continue
        try:
            listed = json.loads(node.inputs[0])
        except json.JSONDecodeError:
            continue
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, Mapping) and "pg_name" in one:
                found[str(one["pg_name"])] = dict(one)
    return found


def recorded_ranks(trace: Trace) -> int:
    """How many processes took part, 1 where the trace says nothing."""
    ranks = trace.about.get("ranks")
    if isinstance(ranks, int):
        return ranks
    sizes = [int(one.get("group_size") or 0) for one in recorded_groups(trace).values()]
    sizes += [int(node.attributes.get("pg_size") or 0) for node in trace.nodes if node.is_collective]
    return max([1, *sizes])


class ProcessGroups:
    """The ranks of this replay: joins them when there are any, and carries out collectives."""

    def __init__(self, trace: Trace, graph: Graph, device: str) -> None:
        self.ranks = recorded_ranks(trace)
        self.graph = graph
        self._groups: dict[str, Any] = {}
        self._device = device
        self.is_joined = False
        has_any = any(node.is_collective for node in trace.nodes)
        if has_any and "RANK" in os.environ:
            started = int(os.environ.get("WORLD_SIZE", "1"))
            if started != self.ranks:
                raise OpsError(
                    f"{trace.path}: recorded with {self.ranks} ranks, replayed with {started}; start as many"
                )
            self._join(recorded_groups(trace))

    def obstacle(self, node: Node) -> str | None:
        """Why a collective cannot be carried out; None when it can."""
        if self.name_of(node) in NO_WORK:
            return "moves nothing"
        if not self.is_joined:
            return f"needs its {self.ranks} ranks: torchrun --nproc-per-node {self.ranks} -m benchmate.ops trace replay"
        if self.name_of(node) not in KNOWN:
            return f"no collective of this name is known: {self.name_of(node)}"
        return None

    @staticmethod
    def name_of(node: Node) -> str:
        """The collective, whichever way it was recorded."""
        if node.name == "record_param_comms":
            return str(node.attributes.get("collective_name") or "init")
        return node.name.partition("::")[2]

    def carried_out(self, node: Node) -> Callable[..., tuple[list[Any], Any]]:
        """A function of the operator's arguments that starts the collective: (what to wait for, its result)."""
        import torch
        import torch.distributed as dist

        group = self._groups.get(self._group_name(node))
        carry_out = KNOWN[self.name_of(node)]
        if node.name == "record_param_comms":
            buffers = self._buffers(node)
            return lambda *_: (carry_out(dist, group, buffers), None)
        names = [argument.name for argument in torch._C.parse_schema(node.schema).arguments]
        if node.name.startswith("_c10d_functional::"):
            return lambda *values: _functional(dist, group, self.name_of(node), dict(zip(names, values, strict=False)))

        def start(*values: Any) -> tuple[list[Any], Any]:
            named = dict(zip(names, values, strict=False))
            works = carry_out(dist, group, named)
            if not named.get("async_op", True):
                for work in works:
                    work.wait()
                works = []
            return works, None

        return start

    def agreed(self, value: bool) -> bool:
        """Whether it is so on any rank."""
        if not self.is_joined:
            return value
        import torch
        import torch.distributed as dist

        flag = torch.tensor(float(value), device=self._device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def leave(self) -> None:
        """Take the ranks apart."""
        if self.is_joined:
            import torch.distributed as dist

            dist.barrier()
            dist.destroy_process_group()
            self.is_joined = False

    def _join(self, recorded: Mapping[str, Mapping[str, Any]]) -> None:
        import torch.distributed as dist

        backend = "nccl" if self._device.startswith("cuda") else "gloo"
        timeout = datetime.timedelta(seconds=TIMEOUT_S)
        dist.init_process_group(backend, timeout=timeout)
        self.is_joined = True
        everyone = list(range(dist.get_world_size()))
        for name, one in sorted(recorded.items()):
            ranks = [int(rank) for rank in one.get("ranks") or everyone]
            # Only members know of a group that others have, so only they can be asked to make it.
            if ranks != everyone and dist.get_rank() in ranks:
                self._groups[name] = dist.new_group(ranks, timeout=timeout, use_local_synchronization=True)

    def _group_name(self, node: Node) -> str:
        # gloo's entries do not say in which group they ran; NCCL's stand below the operator.
        for one in self.graph.within(node.id):
            if "pg_name" in one.attributes:
                return str(one.attributes["pg_name"])
        return ""

    def _buffers(self, node: Node) -> dict[str, Any]:
        import torch

        attributes = node.attributes
        dtype = _dtype(str(attributes.get("dtype") or "Float"))
        made = [
            torch.zeros(int(attributes.get(f"{side}_msg_nelems") or 0), dtype=dtype, device=self._device)
            for side in ("in", "out")
        ]
        given, taken = made
        return {
            "tensors": [given],
            "output_tensor": taken,
            "input_tensor": given,
            "output": taken,
            "input": given,
            "output_split_sizes": (),
            "input_split_sizes": (),
            "root_rank": 0,
            "async_op": False,
        }


def _dtype(name: str) -> Any:
    import torch

    known = {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "long": "int64",
        "int": "int32",
        "byte": "uint8",
    }
    short = name.lower().replace("c10::", "")
    found = getattr(torch, known.get(short, short), None)
    if not isinstance(found, torch.dtype):
        raise OperatorFailed(f"unknown element type {name!r} of a collective")
    return found


def _functional(dist: Any, group: Any, name: str, named: dict[str, Any]) -> tuple[list[Any], Any]:
    if name == "wait_tensor":
        return [], named["tensor"]
    given = named.get("input", named.get("tensor"))
    if name in ("all_reduce", "all_reduce_", "broadcast", "broadcast_"):
        out = given if name.endswith("_") else given.clone()
        act = dist.all_reduce if name.startswith("all_reduce") else _broadcast_from_first(dist, group)
        return [act(out, group=group, async_op=True)], out
    ranks = dist.get_world_size(group)
    if name == "all_gather_into_tensor":
        out = given.new_empty((given.shape[0] * ranks, *given.shape[1:]))
        return [dist.all_gather_into_tensor(out, given, group=group, async_op=True)], out
    if name == "reduce_scatter_tensor":
        out = given.new_empty((given.shape[0] // ranks, *given.shape[1:]))
        return [dist.reduce_scatter_tensor(out, given, group=group, async_op=True)], out
    splits = list(named["output_split_sizes"])
    out = given.new_empty((sum(splits), *given.shape[1:]))
    work = dist.all_to_all_single(out, given, splits, list(named["input_split_sizes"]), group=group, async_op=True)
    return [work], out


def _broadcast_from_first(dist: Any, group: Any) -> Callable[..., Any]:
    def broadcast(tensor: Any, **options: Any) -> Any:
        return dist.broadcast(tensor, _global(dist, group, 0), **options)

    return broadcast


def _global(dist: Any, group: Any, rank: int) -> int:
    return rank if group is None else int(dist.get_global_rank(group, rank))


def _all_reduce(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    # Which reduction it was is not in the trace; all move the same bytes.
    return [dist.all_reduce(one, group=group, async_op=True) for one in named["tensors"]]


def _all_gather(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    pairs = zip(named["output_tensors"], named["input_tensors"], strict=True)
    return [dist.all_gather(list(outs), one, group=group, async_op=True) for outs, one in pairs]


def _all_gather_lists(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    by_input = zip(*named["output_lists"], strict=True)
    pairs = zip(by_input, named["input_list"], strict=True)
    return [dist.all_gather(list(outs), one, group=group, async_op=True) for outs, one in pairs]


def _all_gather_base(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    return [dist.all_gather_into_tensor(named["output_tensor"], named["input_tensor"], group=group, async_op=True)]


def _all_gather_coalesced(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    pairs = zip(named["outputs"], named["inputs"], strict=True)
    return [dist.all_gather_into_tensor(out, one, group=group, async_op=True) for out, one in pairs]


def _reduce_scatter(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    pairs = zip(named["output_tensors"], named["input_tensors"], strict=True)
    return [dist.reduce_scatter(out, list(ones), group=group, async_op=True) for out, ones in pairs]


def _reduce_scatter_base(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    return [dist.reduce_scatter_tensor(named["output_tensor"], named["input_tensor"], group=group, async_op=True)]


def _reduce_scatter_coalesced(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    pairs = zip(named["outputs"], named["inputs"], strict=True)
    return [dist.reduce_scatter_tensor(out, one, group=group, async_op=True) for out, one in pairs]


def _broadcast(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    root = _global(dist, group, named["root_rank"])
    return [dist.broadcast(one, root, group=group, async_op=True) for one in named["tensors"]]


def _reduce(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    root = _global(dist, group, named["root_rank"])
    return [dist.reduce(one, root, group=group, async_op=True) for one in named["tensors"]]


def _gather(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    root = _global(dist, group, named["root_rank"])
    outs = list(named["output_tensors"][0]) if dist.get_rank() == root else None
    return [dist.gather(named["input_tensors"][0], outs, root, group=group, async_op=True)]


def _scatter(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    root = _global(dist, group, named["root_rank"])
    ones = list(named["input_tensors"][0]) if dist.get_rank() == root else None
    return [dist.scatter(named["output_tensors"][0], ones, root, group=group, async_op=True)]


def _all_to_all_single(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    splits = [list(named[f"{side}_split_sizes"]) or None for side in ("output", "input")]
    return [dist.all_to_all_single(named["output"], named["input"], *splits, group=group, async_op=True)]


def _all_to_all(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    return [dist.all_to_all(list(named["output_tensors"]), list(named["input_tensors"]), group=group, async_op=True)]


def _barrier(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    return [dist.barrier(group=group, async_op=True)]


def _send(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    to = _global(dist, group, named["dst"])
    return [dist.isend(one, to, group=group, tag=named["tag"]) for one in named["tensors"]]


def _receive(dist: Any, group: Any, named: Mapping[str, Any]) -> list[Any]:
    sender = _global(dist, group, named["src"]) if "src" in named else None
    return [dist.irecv(one, sender, group=group, tag=named["tag"]) for one in named["tensors"]]


# Names of c10d's operators, of the entries `record_param_comms` and of functional collectives.
KNOWN: dict[str, Callable[[Any, Any, Mapping[str, Any]], list[Any]]] = {
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce,
    "allreduce": _all_reduce,
    "all_reduce": _all_reduce,
    "all_reduce_": _all_reduce,
    "allreduce_coalesced": _all_reduce,
    "allgather_": _all_gather,
    "allgather_coalesced_": _all_gather_lists,
    "_allgather_base_": _all_gather_base,
    "_allgather_base": _all_gather_base,
    "allgather_base": _all_gather_base,
    "all_gather": _all_gather_base,
    "allgather": _all_gather_base,
    "all_gather_into_tensor": _all_gather_base,
    "allgather_into_tensor_coalesced_": _all_gather_coalesced,
    "reduce_scatter_": _reduce_scatter,
    "_reduce_scatter_base_": _reduce_scatter_base,
    "_reduce_scatter_base": _reduce_scatter_base,
    "reduce_scatter": _reduce_scatter_base,
    "reduce_scatter_tensor": _reduce_scatter_base,
    "reduce_scatter_tensor_coalesced_": _reduce_scatter_coalesced,
    "broadcast_": _broadcast,
    "broadcast": _broadcast,
    "reduce_": _reduce,
    "reduce": _reduce,
    "gather_": _gather,
    "scatter_": _scatter,
    "alltoall_base_": _all_to_all_single,
    "all_to_all": _all_to_all_single,
    "all_to_allv": _all_to_all_single,
    "alltoall_base": _all_to_all_single,
    "all_to_all_single": _all_to_all_single,
    "alltoall_": _all_to_all,
    "barrier": _barrier,
    "send": _send,
    "recv_": _receive,
    "recv_any_source_": _receive,
    "wait_tensor": _barrier,  # of functional collectives: waits, see `_functional`
}
