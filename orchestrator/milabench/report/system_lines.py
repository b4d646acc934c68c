"""The origin of a run as names and texts: the run, its machines, its software, the overhead of the harness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from milabench.analysis.host_load import busy_text, clock_text
from milabench.analysis.summary_model import Summary, some_names
from milabench.events.shims import note_of
from milabench.events.values import as_mapping, mappings_in


def system_lines(summary: Summary) -> list[tuple[str, str]]:
    """Return the run, its machines and its software, as name and value."""
    profile = summary.profile or "not recorded"
    software = {"milabench": summary.version, **summary.software}
    shims = software.pop("shims", "")
    lines = (
        ("created", summary.created),
        ("capsule", summary.capsule),
        ("profile", f"{profile}: every number is an indication only" if profile == "quick" else profile),
        ("size", ", ".join(summary.sizes)),
        ("nodes", some_names(summary.node_names)),
        *_lines_of_nodes(summary.nodes),
        ("system", "" if summary.nodes else "not recorded"),
        ("software", ", ".join(f"{name} {version}" for name, version in software.items() if version)),
        ("shims", "; ".join(f"{shim}: {note_of(shim)}" for shim in shims.split(", ") if shim)),
        ("harness", _overhead_text(summary.overhead)),
    )
    return [("run", summary.run), *((name, text) for name, text in lines if text)]


def _overhead_text(overhead: Mapping[str, float]) -> str:
    """Return the CPU time of the harness while benchmarks ran, as a share of a core. Empty where it was not recorded."""
    wall, control, agent = (overhead.get(name) for name in ("wall_s", "control_cpu_s", "agent_cpu_s"))
    if not wall or control is None or agent is None:
        return ""
    share = f"{100 * (control + agent) / wall:.2f}"
    return f"{share} % of a core: control plane {control:.2f} s, agent {agent:.2f} s, in {wall:.1f} s"


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
    cpu, memory, clock, busy = as_mapping(node.get("cpu")), node.get("memory_MiB"), clock_text(node), busy_text(node)
    count = f"{cpu['count']} x " if cpu.get("count") else ""
    lines = (
        ("cpu", f"{count}{cpu.get('model') or 'unknown model'}" if cpu.get("model") or count else ""),
        ("memory", f"{memory / 1024:.1f} GiB" if isinstance(memory, int | float) and memory else ""),
        ("devices", _devices(mappings_in(node.get("devices")))),
        ("os", " ".join(str(part) for part in (node.get("os"), node.get("kernel")) if part)),
        ("clock", clock and f"{clock} when it began. Its records are stamped by it"),
        ("busy", busy and f"{busy} when it began"),
    )
    return [(kind, text) for kind, text in lines if text]


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
