"""Collectives of a trace: its process groups joined over gloo or NCCL, and each collective a call of torch.distributed."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from benchmate.ops import collectives
from benchmate.ops.base import JsonMapping, JsonObject, OperatorFailed, OpsError, Tensor, Work
from benchmate.ops.operators import parse_schema
from benchmate.ops.traces.graph import Graph
from benchmate.ops.traces.schema import Node, Trace, dtype_name

INIT = "## process_group:init ##"
NO_WORK = ("init", "wait")  # entries of NCCL's that move nothing
TIMEOUT_S = 300

Named = Mapping[str, Any]
"""Arguments of a collective by the names of its schema: tensors, lists of them, ranks, sizes."""
StartCollective = Callable[..., "tuple[list[Work], Tensor | None]"]
"""Start a collective with an operator's arguments: (handle to wait for, result)."""


def recorded_groups(trace: Trace) -> dict[str, JsonObject]:
    """Return the process groups that a trace declares, by name: {"ranks": [...], "group_size": n, ...}; the last counts."""
    groups: dict[str, JsonObject] = {}
    for node in trace.nodes:
        if node.name != INIT or not node.inputs or not isinstance(node.inputs[0], str):
            continue
        with contextlib.suppress(json.JSONDecodeError, TypeError):
            listed = json.loads(node.inputs[0])
            named = [group for group in listed if isinstance(group, Mapping) and "pg_name" in group]
            groups |= {str(group["pg_name"]): dict(group) for group in named}
    return groups


def recorded_ranks(trace: Trace) -> int:
    """Return how many processes took part, 1 where the trace does not tell."""
    ranks = trace.about.get("ranks")
    if isinstance(ranks, int):
        return ranks
    sizes = [int(group.get("group_size") or 0) for group in recorded_groups(trace).values()]
    sizes += [int(node.attributes.get("pg_size") or 0) for node in trace.nodes if node.is_collective]
    return max([1, *sizes])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The ranks that take part: a process group of torch.distributed (`dist`), None for all ranks."""

    dist: ModuleType
    group: object | None = None

    def start(self, collective: str, *args: object) -> Work:
        """Start a collective by its name in torch, without waiting."""
        return getattr(self.dist, collective)(*args, group=self.group, async_op=True)

    def global_rank(self, rank: int) -> int:
        """Return the number among all ranks of a rank of this group."""
        return rank if self.group is None else int(self.dist.get_global_rank(self.group, rank))

    def start_functional(self, name: str, named: Named) -> tuple[list[Work], Tensor]:
        """Start a functional collective, which returns its result: (handle to wait for, result)."""
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


Collective = Callable[[Ranks, Named], "list[Work]"]


def _all_reduce(ranks: Ranks, named: Named) -> list[Work]:
    # Which reduction it was is not in the trace; all move the same bytes.
    return [ranks.start("all_reduce", tensor) for tensor in named["tensors"]]


def _single(collective: str, out: str, given: str) -> Collective:
    """Return a collective from an argument into another, each a tensor or a list of them."""
    return lambda ranks, named: [ranks.start(collective, named[out], named[given])]


def _pairs(collective: str, outs: str, given: str) -> Collective:
    """Return a collective that is started for every pair of items of two arguments."""
    return lambda ranks, named: [ranks.start(collective, *pair) for pair in zip(named[outs], named[given], strict=True)]


def _all_gather_lists(ranks: Ranks, named: Named) -> list[Work]:
    outs_of_input = map(list, zip(*named["output_lists"], strict=True))
    return _pairs("all_gather", "outs", "inputs")(ranks, {"outs": list(outs_of_input), "inputs": named["input_list"]})


def _rooted(collective: str) -> Collective:
    """Return a collective in place, from a rank to all or from all to a rank."""

    def start(ranks: Ranks, named: Named) -> list[Work]:
        root = ranks.global_rank(named["root_rank"])
        return [ranks.start(collective, tensor, root) for tensor in named["tensors"]]

    return start


def _listed_at_root(collective: str, own: str, listed: str) -> Collective:
    """Return a collective between a tensor of each rank and a list of them, which only the root may give."""

    def start(ranks: Ranks, named: Named) -> list[Work]:
        root = ranks.global_rank(named["root_rank"])
        tensors = named[listed][0] if ranks.dist.get_rank() == root else None
        return [ranks.start(collective, named[own][0], tensors, root)]

    return start


def _to_peer(function: str, peer: str) -> Collective:
    """Return a transfer of the tensors between two ranks. Without a peer, from whoever sends."""

    def start(ranks: Ranks, named: Named) -> list[Work]:
        other = ranks.global_rank(named[peer]) if peer in named else None
        transfer = getattr(ranks.dist, function)
        return [transfer(tensor, other, group=ranks.group, tag=named["tag"]) for tensor in named["tensors"]]

    return start


def _all_to_all_single(ranks: Ranks, named: Named) -> list[Work]:
    splits = [named[f"{side}_split_sizes"] or None for side in ("output", "input")]
    return [ranks.start("all_to_all_single", named["output"], named["input"], *splits)]


def _barrier(ranks: Ranks, _: Named) -> list[Work]:
    return [ranks.start("barrier")]


_GATHER, _SCATTER = "all_gather_into_tensor", "reduce_scatter_tensor"
# Names of c10d's operators, of the entries `record_param_comms` and of functional collectives.
_NAMES: tuple[tuple[Collective, str], ...] = (
    (_all_reduce, "allreduce_ allreduce_coalesced_ allreduce all_reduce all_reduce_ allreduce_coalesced"),
    (_pairs("all_gather", "output_tensors", "input_tensors"), "allgather_"),
    (_all_gather_lists, "allgather_coalesced_"),
    (
        _single(_GATHER, "output_tensor", "input_tensor"),
        "_allgather_base_ _allgather_base allgather_base all_gather allgather all_gather_into_tensor",
    ),
    (_pairs(_GATHER, "outputs", "inputs"), "allgather_into_tensor_coalesced_"),
    (_pairs("reduce_scatter", "output_tensors", "input_tensors"), "reduce_scatter_"),
    (
        _single(_SCATTER, "output_tensor", "input_tensor"),
        "_reduce_scatter_base_ _reduce_scatter_base reduce_scatter reduce_scatter_tensor",
    ),
    (_pairs(_SCATTER, "outputs", "inputs"), "reduce_scatter_tensor_coalesced_"),
    (_rooted("broadcast"), "broadcast_ broadcast"),
    (_rooted("reduce"), "reduce_ reduce"),
    (_listed_at_root("gather", "input_tensors", "output_tensors"), "gather_"),
    (_listed_at_root("scatter", "output_tensors", "input_tensors"), "scatter_"),
    (_all_to_all_single, "alltoall_base_ all_to_all all_to_allv alltoall_base all_to_all_single"),
    (_single("all_to_all", "output_tensors", "input_tensors"), "alltoall_"),
    (_barrier, "barrier wait_tensor"),  # a wait of functional collectives is carried out by start_functional
    (_to_peer("isend", "dst"), "send"),
    (_to_peer("irecv", "src"), "recv_ recv_any_source_"),
)
COLLECTIVES = {name: collective for collective, names in _NAMES for name in names.split()}


class ProcessGroups:
    """The ranks of this replay: joins them where there are several, and starts collectives."""

    def __init__(self, trace: Trace, graph: Graph, device: str) -> None:
        self.ranks = recorded_ranks(trace)
        self.graph = graph
        self._groups: dict[str, object] = {}
        self._device = device
        self.is_joined = False
        if "RANK" in os.environ and any(node.is_collective for node in trace.nodes):
            started = int(os.environ.get("WORLD_SIZE", "1"))
            if started != self.ranks:
                raise OpsError(
                    f"{trace.path}: recorded with {self.ranks} ranks, replayed with {started}. Start as many"
                )
            self._join(recorded_groups(trace))

    def obstacle(self, node: Node) -> str | None:
        """Return why a collective cannot be carried out. None when it can."""
        name = self.name_of(node)
        if name in NO_WORK:
            return "moves nothing"
        if not self.is_joined:
            return f"needs its {self.ranks} ranks: torchrun --nproc-per-node {self.ranks} -m benchmate.ops trace replay"
        return None if name in COLLECTIVES else f"no collective of this name is known: {name}"

    @staticmethod
    def name_of(node: Node) -> str:
        """Return the name of a collective, whichever way it was recorded."""
        if node.name == "record_param_comms":
            return str(node.attributes.get("collective_name") or "init")
        return node.name.partition("::")[2]

    def starter(self, node: Node) -> StartCollective:
        """Return the function that starts the collective of a node."""
        import torch.distributed as dist

        name = self.name_of(node)
        ranks = Ranks(dist=dist, group=self._groups.get(self._group_name(node)))
        collective = COLLECTIVES[name]
        if node.name == "record_param_comms":
            buffers = self._buffers(node)
            return lambda *_: (collective(ranks, buffers), None)
        names = [argument.name for argument in parse_schema(node.schema).arguments]
        if node.name.startswith("_c10d_functional::"):
            return lambda *values: ranks.start_functional(name, dict(zip(names, values, strict=False)))

        def start(*values: object) -> tuple[list[Work], None]:
            named = dict(zip(names, values, strict=False))
            works = collective(ranks, named)
            # What the program waited for at once is waited for at once here.
            if not named.get("async_op", True):
                for work in works:
                    work.wait()
                works = []
            return works, None

        return start

    def any_rank(self, value: bool) -> bool:
        """Whether the value is true on any rank."""
        if not self.is_joined:
            return value
        import torch
        import torch.distributed as dist

        flag = torch.tensor(float(value), device=self._device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def leave(self) -> None:
        """Take the process groups down."""
        if self.is_joined:
            collectives.leave()
            self.is_joined = False

    def _join(self, recorded: Mapping[str, JsonMapping]) -> None:
        import torch.distributed as dist

        backend = "nccl" if self._device.startswith("cuda") else "gloo"
        timeout = datetime.timedelta(seconds=TIMEOUT_S)
        dist.init_process_group(backend, timeout=timeout)
        self.is_joined = True
        everyone = list(range(dist.get_world_size()))
        for name, group in sorted(recorded.items()):
            ranks = [int(rank) for rank in group.get("ranks") or everyone]
            # Only members know of a group that others have, so only they can be asked to make it.
            if ranks != everyone and dist.get_rank() in ranks:
                self._groups[name] = dist.new_group(ranks, timeout=timeout, use_local_synchronization=True)

    def _group_name(self, node: Node) -> str:
        # gloo's entries do not say in which group they ran; NCCL's stand below the operator.
        named = (inner for inner in self.graph.within(node.id) if "pg_name" in inner.attributes)
        return next((str(inner.attributes["pg_name"]) for inner in named), "")

    def _buffers(self, node: Node) -> JsonObject:
        """Return the arguments of any collective for an entry that tells nothing but its sizes."""
        import torch

        name = str(node.attributes.get("dtype") or "Float")
        dtype = getattr(torch, dtype_name(name), None)
        if not isinstance(dtype, torch.dtype):
            raise OperatorFailed(f"unknown element type {name!r} of a collective")
        given, taken = (
            torch.zeros(int(node.attributes.get(f"{side}_msg_nelems") or 0), dtype=dtype, device=self._device)
            for side in ("in", "out")
        )
        tensors = {"tensors": [given], "output_tensor": taken, "input_tensor": given, "output": taken, "input": given}
        return {**tensors, "output_split_sizes": (), "input_split_sizes": (), "root_rank": 0, "async_op": False}
