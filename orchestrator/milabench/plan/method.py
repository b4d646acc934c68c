"""The plan methods: how many processes a benchmark has, on which devices of which nodes, and whether they form a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from milabench.config.schema import BenchmarkConfig, Method
from milabench.facts.model import Device, Node, SystemFacts

# The launcher whose ranks are steps of their own.
RANKS: Final = "ranks"
# The launchers that are started on one node and reach the others themselves.
MPIRUN: Final = "mpirun"
SRUN: Final = "srun"

RankedNodes: TypeAlias = Sequence[tuple[int, Node]]
"""Nodes, each with its number among all of the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A process of a benchmark: its node, the devices it sees, and the tag that tells it from its siblings."""

    node: Node
    node_rank: int
    devices: tuple[Device, ...]
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMethod:
    """The meaning of a plan method.

    `is_one_job`: the processes are ranks of a program, and all of them give a single measurement. Else each is an instance
    that is measured by itself, while the others run. `spans_nodes`: the ranks on several nodes belong together.
    """

    placements: Callable[[BenchmarkConfig, RankedNodes], Iterator[Placement]]
    is_one_job: bool = False
    spans_nodes: bool = False


def _one_per_device(_: BenchmarkConfig, nodes: RankedNodes) -> Iterator[Placement]:
    for rank, node in nodes:
        for device in node.devices:
            yield Placement(node=node, node_rank=rank, devices=(device,), tag=f"D{device.index}")


def _one_per_node(_: BenchmarkConfig, nodes: RankedNodes) -> Iterator[Placement]:
    for rank, node in nodes:
        yield Placement(node=node, node_rank=rank, devices=node.devices, tag="")


def _n_per_node(bench: BenchmarkConfig, nodes: RankedNodes) -> Iterator[Placement]:
    for rank, node in nodes:
        for number in range(bench.plan.n):
            yield Placement(node=node, node_rank=rank, devices=node.devices[: bench.plan.devices], tag=str(number))


METHODS: Final[Mapping[Method, PlanMethod]] = {
    "per_gpu": PlanMethod(placements=_one_per_device),
    "njobs": PlanMethod(placements=_n_per_node),
    "multigpu": PlanMethod(placements=_one_per_node, is_one_job=True),
    "multinode": PlanMethod(placements=_one_per_node, is_one_job=True, spans_nodes=True),
}
ONE_JOB_METHODS: Final = tuple(name for name, method in METHODS.items() if method.is_one_job)


def method_of(bench: BenchmarkConfig) -> PlanMethod:
    """Return the meaning of a benchmark's plan method."""
    return METHODS[bench.plan.method]


def is_client_server(bench: BenchmarkConfig) -> bool:
    """Return whether a benchmark is a server and its client."""
    return bench.server is not None or bench.client is not None


def reached_nodes(bench: BenchmarkConfig, facts: SystemFacts) -> tuple[str, ...]:
    """Return the nodes on which a launcher that is started on any of them starts ranks. Empty for other launchers."""
    reaches = method_of(bench).spans_nodes and bench.plan.launcher in (MPIRUN, SRUN)
    return tuple(node.name for _, node in nodes_of(bench, facts)) if reaches else ()


def placements(bench: BenchmarkConfig, facts: SystemFacts) -> Iterator[Placement]:
    """Yield the processes of a replicate of a benchmark, in rank order."""
    method, nodes = method_of(bench), nodes_of(bench, facts)
    if method.is_one_job and bench.plan.launcher == RANKS:
        return _one_per_device(bench, nodes)
    # One command starts the whole job; a second one on another node would start it again.
    if reached_nodes(bench, facts):
        nodes = nodes[:1]
    return method.placements(bench, nodes)


def nodes_of(bench: BenchmarkConfig, facts: SystemFacts) -> tuple[tuple[int, Node], ...]:
    """Return the nodes that run a benchmark, each with its number.

    The nodes of `plan.nodes`. Else the first `num_machines`, if it is given, for a job that spans nodes and for a server
    with its client (1 by default). Else all nodes.
    """
    ranked = tuple(enumerate(facts.nodes))
    if bench.plan.nodes:
        return tuple(
            (rank, node) for rank, node in ranked if "all" in bench.plan.nodes or node.name in bench.plan.nodes
        )
    needs_number = method_of(bench).spans_nodes or is_client_server(bench) or "num_machines" in bench.origin
    return ranked[: bench.num_machines] if needs_number else ranked


def why_not_placed(bench: BenchmarkConfig, facts: SystemFacts) -> str | None:
    """Return the reason why a benchmark cannot be placed on these machines, or None."""
    if bench.num_machines > len(facts.nodes):
        return f"needs {bench.num_machines} machines, the system has {len(facts.nodes)}"
    known = {node.name for node in facts.nodes}
    if unknown := [name for name in bench.plan.nodes if name not in known and name != "all"]:
        return f"unknown node {' or '.join(unknown)}. Known: {', '.join(sorted(known))}"
    sliced = [node.name for _, node in nodes_of(bench, facts) if sum("slice_of" in d.details for d in node.devices) > 1]
    if sliced and method_of(bench).is_one_job:
        return f"a job cannot use several MIG slices: {', '.join(sliced)}"
    bare = [node.name for _, node in nodes_of(bench, facts) if not node.devices]
    return f"no accelerator on {', '.join(bare)}" if bare else None
