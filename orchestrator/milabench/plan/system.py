"""The machines that a plan is made for: from the system file, completed with their reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from milabench.config.schema import GpuConfig, NodeConfig, SystemConfig
from milabench.errors import ConfigError
from milabench.facts.allocated_nodes import AllocatedNode, Allocation, expand_nodelist
from milabench.facts.model import Arch, Device, Node, SystemFacts


def system_facts(
    system: SystemConfig, local: Node, arch: Arch, reported: Mapping[str, Node] | None = None
) -> SystemFacts:
    """Return the machines that a plan is made for: from the system file, or this machine.

    `reported` are the nodes' own reports, by name. Of other nodes only the file's facts are known.
    `system.gpu.count` and `.capacity` override detected values. Without accelerators, slots of the processor are used.
    """
    if not system.nodes:
        node = replace(local, cpu_count=system.cpu_count or local.cpu_count)
        return SystemFacts(arch=arch, nodes=(_with_devices(node, system.gpu, arch),))
    nodes = []
    for entry in sorted(system.nodes, key=lambda node: not node.main):
        here = is_local(entry, local, system)
        known = local if here else (reported or {}).get(entry.name, Node(storage=entry.name))
        node = replace(
            known,
            name=entry.name,
            ip=entry.ip,
            port=entry.port,
            user=entry.user,
            main=entry.main,
            local=here,
            base="" if here else entry.base,
            cpu_count=entry.cpu_count or system.cpu_count or known.cpu_count,
            memory_mib=entry.memory_mib or known.memory_mib,
        )
        nodes.append(_with_devices(node, entry.gpu or system.gpu, arch))
    return SystemFacts(arch=arch, nodes=tuple(nodes))


def allocated_facts(
    system: SystemConfig, local: Node, arch: Arch, allocation: Allocation, reported: Mapping[str, Node]
) -> SystemFacts:
    """Return the nodes of an allocation, or the stated nodes. The first is the main node.

    They share the file system that the base lies on: files made there are there for all. `reported` are the nodes'
    own reports, by name.
    """
    stated = system.gpu if system.gpu.count is not None else replace(system.gpu, count=stated_devices(system))
    nodes = []
    for rank, entry in enumerate(allocation.nodes):
        here = entry.name == allocation.here
        known = local if here else reported.get(entry.name)
        node = replace(
            known or Node(ip=entry.name),
            name=entry.name,
            main=rank == 0,
            local=here,
            cpu_count=system.cpu_count or (known.cpu_count if known else entry.cpus or 1),
        )
        # Slots of a processor nobody can detect: there are as many as were stated, in the plan and in the job.
        nodes.append(_with_devices(node, system.gpu if known and arch != "cpu" else stated, arch))
    return SystemFacts(arch=arch, nodes=tuple(nodes))


def stated_devices(system: SystemConfig) -> int | None:
    """Return the devices of a node that `gpus_per_node` asks for, such as `a100:4`. None where it asks for none.

    Raises ConfigError.
    """
    text = system.slurm.gpus_per_node
    if not text:
        return None
    counts = [re.fullmatch(r"(?:[^:,]+:)?([0-9]{1,4})", part) for part in text.split(",")]
    if None in counts:
        raise ConfigError(f"system.slurm.gpus_per_node: '{text}' is not a number of devices. Write 4, or a100:4")
    return sum(int(count[1]) for count in counts if count is not None)


def stated_allocation(system: SystemConfig, *, is_distributed: bool = False) -> Allocation:
    """Return the nodes that a future job will have.

    They have the names of `slurm.nodelist` where that leaves no choice, or each of its nodes is meant. Else `node1`, `node2`
    and so on. Raises ConfigError for a node list that cannot be read.
    """
    named = nodes_in(system.slurm.nodelist, "nodelist")
    wanted = system.slurm.nodes or len(named) or 1
    is_named = is_distributed or len(named) == wanted
    names = named if named and is_named else [f"node{number}" for number in range(1, wanted + 1)]
    return Allocation(job="", nodes=tuple(AllocatedNode(name=name, job="") for name in names))


def nodes_in(text: str, key: str) -> tuple[str, ...]:
    """Return the names in a node list of `system.slurm`, the key of which an error names. Raises ConfigError."""
    try:
        return expand_nodelist(text)
    except ValueError as error:
        raise ConfigError(f"system.slurm.{key}: '{text}': {error}") from None


def is_local(entry: NodeConfig, local: Node, system: SystemConfig) -> bool:
    """Return whether a node of the system file is this machine: behind another port than ssh's, or a jump, may be any."""
    names = {local.hostname, local.ip, "localhost", *local.details.get("addresses", ())}
    is_named = entry.ip in names or (len(system.nodes) == 1 and entry.hostname in names)
    return is_named and entry.port == 22 and not entry.proxy_jump


def _with_devices(node: Node, gpu: GpuConfig, arch: Arch) -> Node:
    count = gpu.count
    detected = tuple(device for device in node.devices if device.arch == arch)
    if count is None or arch == "cpu":
        # Slots of a processor are made up: one, where nobody says how many.
        count = count or len(detected) or 1
    kept = detected[:count]
    # One that is lost, or hidden from us, leaves a gap: those that are only stated take the next numbers.
    first = max((device.index for device in kept), default=-1) + 1
    stated = tuple(
        Device(
            index=index,
            uuid=f"{arch}-{node.hostname or node.name}-{index}",
            name=gpu.name or ((node.cpu_model or "processor") if arch == "cpu" else arch),
            arch=arch,
        )
        for index in range(first, first + count - len(kept))
    )
    devices = tuple(replace(device, memory_mib=gpu.capacity_mib or device.memory_mib) for device in kept + stated)
    return replace(node, devices=devices)
