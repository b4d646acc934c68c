"""Which nodes of Slurm a command means: those of the allocation that it is in, or of one that it asks for; or of a later job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from milabench.errors import ConfigError
from milabench.execute.allocation import HeldAllocation, request_nodes
from milabench.facts.slurm import Allocation, allocation_of
from milabench.plan.system import stated_allocation, stated_devices
from milabench.workflow.files import base_folder
from milabench.workflow.options import Session, SuiteOptions

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig
    from milabench.facts.model import Node


def allocation_for(system: SystemConfig, options: SuiteOptions, session: Session) -> Allocation | None:
    """Return the nodes that Slurm places the steps on; None where it does not. Asks for them where the options say so.

    Only stated, with no job, unless the options ask to `allocate`. Raises ConfigError, UsageError for what Slurm refuses, and
    Unreachable.
    """
    if system.engine == "local" or (system.engine is None and system.nodes):
        return None
    ours = allocation_of(options.environ)
    if ours is None and system.engine is None:
        return None
    require_arch(system)
    if options.bound_nodes:
        if ours is None:
            raise ConfigError("no SLURM_JOB_ID: the nodes of a job can be bound only in it")
        names = [name for _, name in options.bound_nodes]
        by_name = {node.name: node for node in ours.nodes}
        return replace(ours, nodes=tuple(by_name[name] for name in names))
    if not options.allocate:
        return stated_allocation(system) if ours is None else without_job(ours)
    if session.allocation is None:
        base = base_folder(options.base)
        session.allocation = HeldAllocation(ours) if ours else request_nodes(system.slurm, base, session.info)
    return session.allocation.nodes


def without_job(allocation: Allocation) -> Allocation:
    """Return the nodes of an allocation as a plan may name them, for what does nothing on them."""
    return replace(allocation, job="", nodes=tuple(replace(node, job="") for node in allocation.nodes))


def require_arch(system: SystemConfig) -> None:
    """Raise ConfigError where the nodes are to have devices, and neither the system file nor this machine says of which kind."""
    from milabench.facts.probe import this_machine

    if system.arch is None and stated_devices(system) and not this_machine().answer().devices:
        raise ConfigError(
            f"system.arch: unknown: this machine has no devices, and slurm.gpus_per_node={system.slurm.gpus_per_node} asks for"
            " nodes that have some; set it, or --arch, to their kind: cuda, rocm, xpu or hpu"
        )


def arch_of_nodes(allocation: Allocation, machine: Node, reported: Mapping[str, Node]) -> str:
    """Return the kind of devices of the first node that reported, or is this machine; of this machine where none has."""
    first = allocation.nodes[0].name
    node = machine if first == allocation.here else reported.get(first, machine)
    return node.devices[0].arch if node.devices else "cpu"
