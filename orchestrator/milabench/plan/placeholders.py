"""The names that a suite's placeholders and expressions may use, with their values on a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milabench.bench.api import ForeignBenchmark
from milabench.devices.registry import vendor_of
from milabench.facts.model import Node
from milabench.plan.context import NodeBenchmark, PlanContext, ResolvedBenchmark
from milabench.plan.model import STEP_DIR
from milabench.plan.render import AUTO_BATCH, AUTO_CPU, uses_auto_batch

# Least and most loader workers, `system.options.cpu.min` and `.max`; milabench 1.3 also has cpu_min and cpu_max.
_WORKERS = (("min", 2), ("max", 16))


def names_for(bench: NodeBenchmark) -> dict[str, object]:
    """Return the values of the placeholders that a benchmark may use (docs/reference/suite-language.md, Placeholders)."""
    config, context, node, dirs = bench.config, bench.context, bench.node, bench.dirs
    on_node = context.on(node)
    if on_node.names is None:
        on_node.names = _names_on(node, context)
    names = {
        **on_node.names,
        "milabench_base": dirs.base,
        "milabench_venv": bench.venv,
        "milabench_code": dirs.code,
        "milabench_extra": f"{dirs.extra}/{config.name}",
        "milabench_data": dirs.data,
        "milabench_runs": dirs.runs,
        "milabench_cache": dirs.cache,
        "milabench_name": config.name,
        "benchmark_folder": bench.folder,
    }
    if isinstance(bench.declared, ForeignBenchmark):
        # Of milabench 1.3: where its files are, and a folder that its group shares.
        names |= {"benchmark_folder": bench.source, "milabench_code": bench.source}
        names |= {"milabench_extra": f"{dirs.extra}/{config.group}"}
    if AUTO_BATCH in names:
        names[AUTO_BATCH] = lambda own: context.sizer.size(config.name, own, device_memory(node))
    return names


def _names_on(node: Node, context: PlanContext) -> dict[str, object]:
    """Return the values that all benchmarks have on a node. The sizer's value only shows that sizing is asked for."""
    arch = context.facts.arch
    sizing = context.system.options.get("cpu", {})
    devices = max(1, len(node.devices))
    available = max(1, int(sizing.get("total_count") or node.cpu_count) - int(sizing.get("reserved_cores", 0)))
    per_device = max(1, available // devices)
    workers = sizing.get("n_workers")
    if workers is None:
        least, most = (sizing.get(key, sizing.get(f"cpu_{key}", default)) for key, default in _WORKERS)
        workers = min(max(per_device, int(least)), int(most))
    system = system_names(context, node)
    return {
        **{key: value for key, value in system.items() if not key.startswith("_")},
        "arch": arch,
        "device_name": vendor_of(arch).torch_device,
        "ccl": vendor_of(arch).collective,
        "cpu_count": available,
        "gpu_count": devices,
        "cpu_per_gpu": per_device,
        "n_worker": int(workers),
        "run_name": context.run_name,
        "step_dir": STEP_DIR,
        "system": system,
        AUTO_CPU: bool(sizing.get("auto", sizing.get("enabled", False))),
        **({AUTO_BATCH: None} if context.sizer.options.asks else {}),
    }


def device_memory(node: Node) -> int | None:
    """Return the MiB of the smallest device of a node. None where it is not known."""
    return min((device.memory_mib for device in node.devices), default=0) or None


def system_names(context: PlanContext, node: Node) -> dict[str, Any]:
    """Return the system for placeholders: the system file, completed with the facts of the machines."""
    first = node.devices[0] if node.devices else None
    gpu = context.system.raw.get("gpu")
    return {
        **context.system.raw,
        "arch": context.facts.arch,
        "gpu": {
            "name": first.name if first is not None else "",
            "capacity": f"{device_memory(node) or 0} MiB",
            **(gpu if isinstance(gpu, Mapping) else {}),
            "count": len(node.devices),
            "memory_MiB": device_memory(node) or 0,
        },
        "nodes": [
            {
                **(context.system.nodes[rank].extra if rank < len(context.system.nodes) else {}),
                **{key: getattr(peer, key) for key in ("name", "ip", "hostname", "port", "user", "main")},
                "hostname": peer.hostname or peer.ip,
            }
            for rank, peer in enumerate(context.facts.nodes)
        ],
    }


def sizing_notes(benches: Sequence[ResolvedBenchmark], context: PlanContext) -> tuple[str, ...]:
    """Return notes on batch sizes that stay unchanged although sizing is asked for."""
    if not context.sizer.options.needs_observations:
        return ()
    memory = device_memory(context.facts.main)
    return tuple(
        why
        for bench in benches
        if bench.declared is not None
        and uses_auto_batch(bench.config)
        and (why := context.sizer.why_unsized(bench.config.name, memory)) is not None
    )
