"""Obstacles to a run on some machines, and differences between them: findings from facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from milabench.facts.model import Node

CLOCK_NOTE_S = 1.0
CLOCK_BAD_S = 30.0
DISK_NOTE_MIB = 5 * 1024
DISK_BAD_MIB = 64
SHM_NOTE_MIB = 1024
MEMORY_SHARE = 0.05  # installed memory of equal machines is reported a little differently


State = Literal["ok", "note", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFinding:
    """A checked fact of a node, or (`node` empty) here or between nodes: fine, worth knowing, or an obstacle to a run."""

    node: str = ""
    what: str
    state: State
    says: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.node, self.what, self.says) if part)


def compare_nodes(
    nodes: Sequence[Node], *, base: str, bases: Mapping[str, str] | None = None, is_allocated: bool = False
) -> tuple[NodeFinding, ...]:
    """Return the findings on each node, then those between them. `base` is our folder, `bases` where a node has it elsewhere.

    Nodes that a scheduler has `allocated` may be parts of the same machine.
    """
    findings = [
        finding for node in nodes for finding in _of_node(node, (bases or {}).get(node.name) or node.base or base)
    ]
    return (*findings, *_differences(nodes), *(() if is_allocated else _twice(nodes)))


def _of_node(node: Node, base: str) -> Iterator[NodeFinding]:
    def finding(what: str, state: State, says: str) -> NodeFinding:
        return NodeFinding(node=node.name, what=what, state=state, says=says)

    details = node.details
    yield finding("system", "ok", f"{node.hostname}: {node.os}, kernel {node.kernel}, agent on Python {node.python}")
    if "behind_s" in details:
        behind = float(details["behind_s"])
        state: State = "bad" if abs(behind) > CLOCK_BAD_S else "note" if abs(behind) > CLOCK_NOTE_S else "ok"
        where = "behind" if behind > 0 else "ahead"
        says = f"its clock is {abs(behind):.1f} s {where}. Set both by NTP" if state != "ok" else "as ours"
        yield finding("clock", state, says)
    room = (details.get("disk") or {}).get(base)
    if room is not None:
        free = int(room["free_mib"])
        state = "bad" if free < DISK_BAD_MIB else "note" if free < DISK_NOTE_MIB else "ok"
        yield finding("disk", state, f"{free / 1024:.1f} GiB free for {base}")
    shm = details.get("shm_mib")
    if isinstance(shm, Mapping):
        free = int(shm["free_mib"])
        state = "note" if free < SHM_NOTE_MIB else "ok"
        yield finding("shared memory", state, f"{free / 1024:.1f} GiB free, and loader workers hand batches over in it")
    yield finding("devices", "ok", _devices(node))
    if busy := list(_processes(node)):
        yield finding("processes", "bad", f"other processes use its devices: {', '.join(busy)}")


def _devices(node: Node) -> str:
    kinds = Counter(_accelerators(node))
    if not kinds:
        return f"no accelerator, {node.cpu_model or 'a processor'}, {node.cpu_count} usable"
    driver = node.details.get("driver")
    return ", ".join(f"{count} x {name}" for name, count in kinds.items()) + (f", driver {driver}" if driver else "")


def _accelerators(node: Node) -> list[str]:
    return [device.name for device in node.devices if device.arch != "cpu"]


def _processes(node: Node) -> Iterator[str]:
    for device in node.devices:
        for process in device.details.get("processes") or ():
            yield f"pid {process['pid']} on device {device.index}"


def _differences(nodes: Sequence[Node]) -> Iterator[NodeFinding]:
    """Yield the differences between machines that should be equal."""
    asked = [node for node in nodes if node.hostname]
    kinds: dict[str, dict[str, str]] = {
        "operating system": {node.name: node.os for node in asked},
        "kernel": {node.name: node.kernel for node in asked},
        "Python of the agent": {node.name: node.python for node in asked},
        "processor": {node.name: f"{node.cpu_model}, {node.cpu_count} usable" for node in asked},
        "driver": {node.name: _text(node.details.get("driver")) for node in asked},
        "CUDA": {node.name: _text(node.details.get("cuda")) for node in asked},
        "devices": {node.name: ", ".join(sorted(_accelerators(node))) or "none" for node in asked},
    }
    for what, values in kinds.items():
        if len(set(values.values())) > 1:
            says = "differs: " + ", ".join(f"{name} {value or 'none'}" for name, value in values.items())
            yield NodeFinding(node="", what=what, state="note", says=says)
    memory = {node.name: node.memory_mib for node in asked if node.memory_mib}
    if memory and max(memory.values()) - min(memory.values()) > MEMORY_SHARE * max(memory.values()):
        says = "differs: " + ", ".join(f"{name} {mib / 1024:.0f} GiB" for name, mib in memory.items())
        yield NodeFinding(node="", what="memory", state="note", says=says)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _twice(nodes: Sequence[Node]) -> Iterator[NodeFinding]:
    """Find entries that lead to the same machine: an obstacle where they would use the same devices."""
    seen: dict[tuple[str, ...], list[Node]] = {}
    for node in nodes:
        # Cloned machines share a host name; the boot id is new with every start.
        who = (node.hostname, _text(node.details.get("boot")), _text(node.details.get("lock_folder")))
        for other in seen.get(who, ()) if all(who[:2]) else ():
            state: State = "bad" if _own_devices(node) & _own_devices(other) else "note"
            says = f"is the same machine as {other.name}: {node.hostname}"
            hint = ". Name each machine once in the system file" if state == "bad" else ""
            yield NodeFinding(node=node.name, what="machine", state=state, says=says + hint)
            break
        seen.setdefault(who, []).append(node)


def _own_devices(node: Node) -> set[str]:
    return {"cpu" if device.arch == "cpu" else device.uuid for device in node.devices} or {"cpu"}
