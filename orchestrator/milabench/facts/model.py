"""The facts of a set of machines, as frozen values that a test can write down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Arch: TypeAlias = str
"""The kind of a machine's accelerators: a vendor in devices/, or cpu."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """An accelerator. On a machine without any, a slot of the processor."""

    index: int
    uuid: str
    name: str
    arch: Arch
    memory_mib: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine: its address and its parts. `cpu_count` is limited by affinity and cgroups, at least 1.

    `base` is our folder there, empty where it has the same path as here. Nodes with the same `storage` share it: one
    file system, on which everything is made once. Empty on the machine that we are on and those that share its.
    """

    name: str = "local"
    ip: str = "127.0.0.1"
    port: int = 22
    user: str = ""
    main: bool = True
    local: bool = True
    base: str = ""
    storage: str = ""
    hostname: str = ""
    cpu_model: str = ""
    cpu_count: int = 1
    memory_mib: int = 0
    os: str = ""
    kernel: str = ""
    python: str = ""
    devices: tuple[Device, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFacts:
    """All the machines that a plan may use. The main node comes first."""

    arch: Arch
    nodes: tuple[Node, ...]

    @property
    def main(self) -> Node:
        """The node that holds rank 0 and everything that runs once."""
        return self.nodes[0]
