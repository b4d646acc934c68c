"""The origin of a run as names and texts: the run, its machines, its software, the overhead of the harness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from milabench.analysis.host_load import busy_text, clock_text
from milabench.analysis.summary_model import Summary, some_names
from milabench.events.shims import note_of
from milabench.events.values import mappings_in


def system_lines(summary: Summary) -> list[tuple[str, str]]:
    """Return the run, its machines and its software, as name and value."""
    lines = [("run", summary.run)]
    if summary.created:
        lines.append(("created", summary.created))
    if summary.capsule:
        lines.append(("capsule", summary.capsule))
    profile = summary.profile or "not recorded"
    lines.append(("profile", f"{profile}: every number is an indication only" if profile == "quick" else profile))
    if summary.sizes:
        lines.append(("size", ", ".join(summary.sizes)))
    if summary.node_names:
        lines.append(("nodes", some_names(summary.node_names)))
    lines += _lines_of_nodes(summary.nodes)
    if not summary.nodes:
        lines.append(("system", "not recorded"))
    software = {"milabench": summary.version, **summary.software}
    shims = software.pop("shims", "")
    versions = ", ".join(f"{name} {version}" for name, version in software.items() if version)
    if versions:
        lines.append(("software", versions))
    if shims:
        lines.append(("shims", "; ".join(f"{shim}: {note_of(shim)}" for shim in shims.split(", "))))
    return lines + _overhead_lines(summary.overhead)


def _overhead_lines(overhead: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the CPU time of the harness while benchmarks ran, as a share of a core."""
    wall, control, agent = (overhead.get(name) for name in ("wall_s", "control_cpu_s", "agent_cpu_s"))
    if not wall or control is None or agent is None:
        return []
    share = f"{100 * (control + agent) / wall:.2f}"
    return [("harness", f"{share} % of a core: control plane {control:.2f} s, agent {agent:.2f} s, in {wall:.1f} s")]


def _lines_of_nodes(nodes: Sequence[Mapping[str, object]]) -> list[tuple[str, str]]:
    """Return the known facts about the nodes, by kind. Facts that not all nodes share name the nodes that have them."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for node in nodes:
        for kind, text in _node_lines(node):
            kinds.setdefault(kind, {}).setdefault(text, []).append(str(node.get("name", "")))
    return [
        (kind if len(names) == len(nodes) else f"{kind} ({some_names(names)})", text)
        for kind, texts in kinds.items()
        for text, names in texts.items()
    ]


def _node_lines(node: Mapping[str, object]) -> list[tuple[str, str]]:
    cpu, lines = node.get("cpu"), []
    cpu = cpu if isinstance(cpu, Mapping) else {}
    if cpu.get("model") or cpu.get("count"):
        count = f"{cpu['count']} x " if cpu.get("count") else ""
        lines.append(("cpu", f"{count}{cpu.get('model') or 'unknown model'}"))
    memory = node.get("memory_MiB")
    if isinstance(memory, int | float) and memory:
        lines.append(("memory", f"{memory / 1024:.1f} GiB"))
    devices = mappings_in(node.get("devices"))
    if devices:
        lines.append(("devices", _devices(devices)))
    system = " ".join(str(part) for part in (node.get("os"), node.get("kernel")) if part)
    if system:
        lines.append(("os", system))
    if clock := clock_text(node):
        lines.append(("clock", f"{clock} when it began. Its records are stamped by it"))
    if busy := busy_text(node):
        lines.append(("busy", f"{busy} when it began"))
    return lines


def _devices(devices: Iterable[Mapping[str, object]]) -> str:
    """Return `8 x NVIDIA H100 (81559 MiB)` for each kind of device."""
    kinds = Counter[str]()
    for device in devices:
        kind = str(device.get("name") or "unknown")
        if device.get("arch") == "cpu":
            kind = f"processor slot ({kind})"
        elif device.get("memory_MiB"):
            kind += f" ({device['memory_MiB']} MiB)"
        kinds[kind] += 1
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
