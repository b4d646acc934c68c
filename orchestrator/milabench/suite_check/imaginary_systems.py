"""Imaginary machines on which a suite can be planned, to see its processes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from milabench.facts.model import Device, Node, SystemFacts
from milabench.plan.context import PlanContext, dirs_under
from milabench.plan.profile import PROFILES

if TYPE_CHECKING:
    from milabench.config.schema import Suite
    from milabench.facts.model import Arch


def most_machines(suite: Suite) -> int:
    """Return how many machines the largest benchmark of a suite takes."""
    return max((bench.num_machines for bench in suite.benchmarks.values()), default=1)


def imaginary_system(suite: Suite, arch: Arch, nodes: int, devices: int) -> PlanContext:
    """Return a system for plans of the suite with this number of machines and devices each, instead of its own system."""
    raw = {key: value for key, value in suite.system.raw.items() if key not in ("nodes", "gpu")}
    return PlanContext(
        facts=SystemFacts(arch=arch, nodes=tuple(_node(rank, devices, arch) for rank in range(nodes))),
        system=replace(suite.system, nodes=(), raw={**raw, "arch": arch}),
        dirs=dirs_under("/imaginary", {}),
        profile=PROFILES["default"],
        repeats=1,
    )


def _node(rank: int, devices: int, arch: Arch) -> Node:
    held = tuple(
        Device(index=index, uuid=f"{rank}-{index}", name="imaginary", arch=arch, memory_mib=81_920)
        for index in range(devices)
    )
    address = f"10.0.0.{rank + 1}"
    return Node(
        name=f"node{rank}", ip=address, hostname=address, user="me", main=rank == 0, local=rank == 0,
        cpu_count=64, devices=held,
    )  # fmt: skip
