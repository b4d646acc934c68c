"""The machines that a plan is made for: those of the system file, completed with what they reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from milabench.config.schema import GpuConfig, NodeConfig, SystemConfig
from milabench.facts.model import Arch, Device, Node, SystemFacts


def system_facts(
    system: SystemConfig, local: Node, arch: Arch, reported: Mapping[str, Node] | None = None
) -> SystemFacts:
    """Return the machines that a plan is made for: those of the system file, or this one.

    `reported` is what nodes reported of themselves, by name; of the others only what the file says is known.
    `system.gpu.count` and `.capacity` override what was detected; where there is no accelerator, slots of the processor stand in.
    """
    if not system.nodes:
        node = replace(local, cpu_count=system.cpu_count or local.cpu_count)
        return SystemFacts(arch=arch, nodes=(_with_devices(node, system.gpu, arch),))
    nodes = []
    for entry in sorted(system.nodes, key=lambda node: not node.main):
        here = is_local(entry, local, alone=len(system.nodes) == 1)
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


def is_local(entry: NodeConfig, local: Node, *, alone: bool) -> bool:
    """Return whether a node of the system file is this machine; behind another port than ssh's may be any (a tunnel)."""
    names = {local.hostname, local.ip, "localhost", *local.details.get("addresses", ())}
    return (entry.ip in names and entry.port == 22) or (alone and (entry.hostname or entry.name) in names)


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
