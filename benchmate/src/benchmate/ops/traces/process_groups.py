"""Process groups of a trace, joined over gloo or NCCL with as many ranks as were recorded."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Mapping

from benchmate.ops.aten import parse_schema
from benchmate.ops.errors import OperatorFailed, OpsError
from benchmate.ops.traces.collective_calls import COLLECTIVES, PendingWork, Ranks
from benchmate.ops.traces.graph import Graph
from benchmate.ops.traces.schema import Node, Trace
from benchmate.ops.types import DType, JsonMapping, JsonObject, Tensor

INIT = "## process_group:init ##"
NO_WORK = ("init", "wait")  # entries of NCCL's that move nothing
TIMEOUT_S = 300
# Names of element types in entries of collectives -> names in torch.
DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "byte": "uint8",
}

StartCollective = Callable[..., tuple[list[PendingWork], Tensor | None]]
"""Start a collective with an operator's arguments: (what to wait for, its result)."""


def recorded_groups(trace: Trace) -> dict[str, JsonObject]:
    """Return the process groups that a trace declares, by name: {"ranks": [...], "group_size": n, ...}; the last counts."""
    groups: dict[str, JsonObject] = {}
    for node in trace.nodes:
        if node.name != INIT or not node.inputs or not isinstance(node.inputs[0], str):
            continue
        try:
            listed = json.loads(node.inputs[0])
        except json.JSONDecodeError:
            continue
        for group in listed if isinstance(listed, list) else ():
            if isinstance(group, Mapping) and "pg_name" in group:
                groups[str(group["pg_name"])] = dict(group)
    return groups


def recorded_ranks(trace: Trace) -> int:
    """Return how many processes took part, 1 where the trace does not tell."""
    ranks = trace.about.get("ranks")
    if isinstance(ranks, int):
        return ranks
    sizes = [int(group.get("group_size") or 0) for group in recorded_groups(trace).values()]
    sizes += [int(node.attributes.get("pg_size") or 0) for node in trace.nodes if node.is_collective]
    return max([1, *sizes])


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
                    f"{trace.path}: recorded with {self.ranks} ranks, replayed with {started}; start as many"
                )
            self._join(recorded_groups(trace))

    def obstacle(self, node: Node) -> str | None:
        """Return why a collective cannot be carried out; None when it can."""
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

        def start(*values: object) -> tuple[list[PendingWork], None]:
            named = dict(zip(names, values, strict=False))
            works = collective(ranks, named)
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
            import torch.distributed as dist

            dist.barrier()
            dist.destroy_process_group()
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
        for inner in self.graph.within(node.id):
            if "pg_name" in inner.attributes:
                return str(inner.attributes["pg_name"])
        return ""

    def _buffers(self, node: Node) -> JsonObject:
        """Return the arguments of any collective for an entry that tells nothing but its sizes."""
        import torch

        attributes = node.attributes
        dtype = _dtype(str(attributes.get("dtype") or "Float"))
        given, taken = (
            torch.zeros(int(attributes.get(f"{side}_msg_nelems") or 0), dtype=dtype, device=self._device)
            for side in ("in", "out")
        )
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


def _dtype(name: str) -> DType:
    import torch

    short = name.lower().replace("c10::", "")
    dtype = getattr(torch, DTYPES.get(short, short), None)
    if not isinstance(dtype, torch.dtype):
        raise OperatorFailed(f"unknown element type {name!r} of a collective")
    return dtype
