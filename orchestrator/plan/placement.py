"""Which node and which devices a benchmark's processes get, and the facts a plan is made for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.config.schema import BenchmarkConfig, GpuConfig, SystemConfig
from orchestrator.facts.model import Arch, Device, Node, SystemFacts

VISIBLE_DEVICES = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "rocm": "ROCR_VISIBLE_DEVICES",
    "xpu": "ONEAPI_DEVICE_SELECTOR",
    "hpu": "HABANA_VISIBLE_MODULES",
}
COLLECTIVES = {"cuda": "nccl", "rocm": "rccl", "xpu": "ccl", "hpu": "hccl", "cpu": "gloo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One process of a benchmark: where it runs, what it sees, and the tag that tells it from its siblings."""

    node: Node
    node_rank: int
    devices: tuple[Device, ...]
    tag: str


def system_facts(system: SystemConfig, local: Node, arch: Arch) -> SystemFacts:
    """The machines that a plan is made for: those of the system file, or this one.

    `system.gpu.count` and `.capacity` override what was detected; where there is no accelerator, slots of the processor stand in.
    """
    if not system.nodes:
        node = replace(local, cpu_count=system.cpu_count or local.cpu_count)
        return SystemFacts(arch=arch, nodes=(_with_devices(node, system.gpu, arch),))
    nodes = []
    for entry in sorted(system.nodes, key=lambda node: not node.main):
        here = _is_here(entry.ip, entry.hostname or entry.name, local, alone=len(system.nodes) == 1)
        known = local if here else Node()
        node = replace(
            known,
            name=entry.name,
            ip=entry.ip,
            port=entry.port,
            user=entry.user,
            main=entry.main,
            local=here,
            cpu_count=entry.cpu_count or system.cpu_count or known.cpu_count,
            memory_mib=entry.memory_mib or known.memory_mib,
        )
        nodes.append(_with_devices(node, entry.gpu or system.gpu, arch))
    return SystemFacts(arch=arch, nodes=tuple(nodes))


def _is_here(ip: str, hostname: str, local: Node, *, alone: bool) -> bool:
    names = {local.hostname, local.ip, "localhost", *local.details.get("addresses", ())}
    return ip in names or (alone and hostname in names)


def _with_devices(node: Node, gpu: GpuConfig, arch: Arch) -> Node:
    count = gpu.count
    found = tuple(device for device in node.devices if device.arch == arch)
    if count is None or arch == "cpu":
        count = count or len(found) or 1
    kept = found[:count]
    made = tuple(
        Device(
            index=index,
            uuid=f"{arch}-{node.hostname or node.name}-{index}",
            name=gpu.name or ((node.cpu_model or "processor") if arch == "cpu" else arch),
            arch=arch,
        )
        for index in range(len(kept), count)
    )
    devices = tuple(replace(device, memory_mib=gpu.capacity_mib or device.memory_mib) for device in kept + made)
    return replace(node, devices=devices)


def why_not(bench: BenchmarkConfig, facts: SystemFacts) -> str | None:
    """The reason why a benchmark cannot be placed on these machines, or None."""
    if bench.num_machines > len(facts.nodes):
        return f"needs {bench.num_machines} machines, the system has {len(facts.nodes)}"
    bare = [node.name for node in facts.nodes[: bench.num_machines] if not node.devices]
    return f"no accelerator on {', '.join(bare)}" if bare else None


def placements(bench: BenchmarkConfig, facts: SystemFacts) -> tuple[Placement, ...]:
    """The processes of one replicate of a benchmark, in rank order."""
    nodes = tuple(enumerate(facts.nodes[: bench.num_machines]))
    match bench.plan.method:
        case "per_gpu":
            return tuple(
                Placement(node=node, node_rank=rank, devices=(device,), tag=f"D{device.index}")
                for rank, node in nodes
                for device in node.devices
            )
        case "njobs":
            return tuple(
                Placement(node=node, node_rank=rank, devices=node.devices, tag=str(job))
                for rank, node in nodes
                for job in range(bench.plan.n)
            )
        case "multigpu" | "multinode":
            return tuple(Placement(node=node, node_rank=rank, devices=node.devices, tag="") for rank, node in nodes)
