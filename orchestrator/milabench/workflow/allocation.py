"""Finds the nodes of a batch scheduler for a command: of its own job, of a requested job, or of a later job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from milabench import seams
from milabench.errors import ConfigError, UsageError
from milabench.facts.allocated_nodes import AllocatedNode, Allocation
from milabench.plan.system import stated_allocation, stated_devices
from milabench.schedulers.scheduler import job_system
from milabench.workflow.options import Session, SuiteOptions

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig
    from milabench.facts.model import Node


def allocation_for(system: SystemConfig, options: SuiteOptions, session: Session) -> Allocation:
    """Return the nodes that Slurm places the steps on. Asks for them where the options say so.

    Only stated, with no job, unless the options ask to `allocate`. Raises ConfigError, UsageError for refused options, and
    Unreachable.
    """
    engine = system.engine or "slurm"
    ours = job_system(engine).allocation(options.environ)
    require_arch(system)
    if options.bound_nodes:
        by_name = {} if ours is None else {node.name: node for node in ours.nodes}
        nodes = [by_name.get(name) or AllocatedNode(name=stated, job="") for stated, name in options.bound_nodes]
        return replace(ours or Allocation(job="", nodes=()), nodes=tuple(nodes))
    if not options.allocate:
        return stated_allocation(system, is_distributed=options.distribute) if ours is None else without_job(ours)
    if engine != "slurm":
        raise UsageError(f"--engine {engine}: it gives nodes to jobs alone. Add --submit")
    if session.allocation is None:
        seams.handler("--engine slurm")(system, ours, options, session)
    assert session.allocation is not None
    return session.allocation.nodes


def without_job(allocation: Allocation) -> Allocation:
    """Return the nodes of an allocation as a plan may name them, for commands that do nothing on them."""
    return replace(allocation, job="", nodes=tuple(replace(node, job="") for node in allocation.nodes))


def require_arch(system: SystemConfig) -> None:
    """Raise ConfigError where the nodes are to have devices, and neither the system file nor this machine says of which kind."""
    from milabench.facts.probe import this_machine

    if system.arch is None and stated_devices(system) and not this_machine().answer().devices:
        raise ConfigError(
            f"system.arch: unknown: this machine has no devices, and slurm.gpus_per_node={system.slurm.gpus_per_node} asks for"
            " nodes that have some. Set it, or --arch, to their kind: cuda, rocm, xpu or hpu"
        )


def as_node_of(allocation: Allocation, machine: Node) -> Node:
    """Return this machine as a node of an allocation, at the address at which the others reach it."""
    if len(allocation.nodes) == 1:
        return machine
    from milabench.workflow.node_query import reachable

    return reachable(replace(machine, name=allocation.here))


def arch_of_nodes(allocation: Allocation, machine: Node, reported: Mapping[str, Node]) -> str:
    """Return the kind of devices of the first node that reported, or is this machine. Else of this machine."""
    first = allocation.nodes[0].name
    node = machine if first == allocation.here else reported.get(first, machine)
    return node.devices[0].arch if node.devices else "cpu"


def run_in_partition(options: SuiteOptions, session: Session) -> int | None:
    """Run this command line where the system says that there is a network, and return its exit code. None where it runs here."""
    if not seams.takes_part("install partition"):
        return None
    code: int | None = seams.handler("install partition")(options, session)
    return code
