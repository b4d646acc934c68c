"""The names that a suite's placeholders and expressions may use, with their values on a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milabench.config.schema import BenchmarkConfig
from milabench.facts.model import Node
from milabench.plan.argv import AUTO_BATCH, auto_batches
from milabench.plan.context import PlanContext, ResolvedBenchmark, dirs_of, venv_of
from milabench.plan.placement import COLLECTIVES

# Least and most loader workers, `system.options.cpu.min` and `.max`; milabench 1.3 also has cpu_min and cpu_max.
_WORKERS = (("min", 2), ("max", 16))
_ALL_ARGUMENTS = ("argv", "server.argv", "client.argv", "command")


def names_for(config: BenchmarkConfig, folder: str, where: PlanContext, node: Node) -> dict[str, Any]:
    """The values of the placeholders that a benchmark's arguments may use (docs/suite-language.md, Placeholders)."""
    sizing = where.system.options.get("cpu", {})
    devices = max(1, len(node.devices))
    available = max(1, int(sizing.get("total_count") or node.cpu_count) - int(sizing.get("reserved_cores", 0)))
    per_device = max(1, available // devices)
    workers = sizing.get("n_workers")
    if workers is None:
        least, most = (sizing.get(key, sizing.get(f"cpu_{key}", otherwise)) for key, otherwise in _WORKERS)
        workers = min(max(per_device, int(least)), int(most))
    dirs = dirs_of(config, where)
    system = system_names(where, node)
    names = {
        **{key: value for key, value in system.items() if not key.startswith("_")},
        "arch": where.facts.arch,
        "device_name": where.facts.arch if where.facts.arch != "rocm" else "cuda",
        "ccl": COLLECTIVES[where.facts.arch],
        "cpu_count": available,
        "gpu_count": devices,
        "cpu_per_gpu": per_device,
        "n_worker": int(workers),
        "milabench_base": dirs.base,
        "milabench_venv": venv_of(config, where),
        "milabench_code": dirs.code,
        "milabench_extra": f"{dirs.extra}/{config.name}",
        "milabench_data": dirs.data,
        "milabench_runs": dirs.runs,
        "milabench_cache": dirs.cache,
        "milabench_name": config.name,
        "benchmark_folder": folder,
        "run_name": where.run_name,
        "system": system,
        "_auto_cpu": bool(sizing.get("auto", sizing.get("enabled", False))),
    }
    if where.sizer.options.asks:
        names[AUTO_BATCH] = lambda own: where.sizer.size(config.name, own, device_memory(node))
    return names


def device_memory(node: Node) -> int | None:
    """MiB of the smallest device of a node; None where it is not known."""
    return min((device.memory_mib for device in node.devices), default=0) or None


def system_names(where: PlanContext, node: Node) -> dict[str, Any]:
    """The system as placeholders see it: what the system file says, completed with what is known of the machines."""
    first = node.devices[0] if node.devices else None
    gpu = where.system.raw.get("gpu")
    return {
        **where.system.raw,
        "arch": where.facts.arch,
        "gpu": {
            "name": first.name if first is not None else "",
            "capacity": f"{device_memory(node) or 0} MiB",
            **(gpu if isinstance(gpu, Mapping) else {}),
            "count": len(node.devices),
            "memory_MiB": device_memory(node) or 0,
        },
        "nodes": [
            {
                **(where.system.nodes[rank].extra if rank < len(where.system.nodes) else {}),
                "name": each.name,
                "ip": each.ip,
                "hostname": each.hostname or each.ip,
                "port": each.port,
                "user": each.user,
                "main": each.main,
            }
            for rank, each in enumerate(where.facts.nodes)
        ],
    }


def sizing_notes(benches: Sequence[ResolvedBenchmark], where: PlanContext) -> tuple[str, ...]:
    """What a person should know about batch sizes that stay as they are although sizing is asked for."""
    if not where.sizer.options.needs_observations:
        return ()
    memory = device_memory(where.facts.main)
    return tuple(
        why
        for bench in benches
        if bench.declared is not None
        and auto_batches(bench.config, names_for(bench.config, bench.folder, where, where.facts.main), _ALL_ARGUMENTS)
        and (why := where.sizer.why_unsized(bench.config.name, memory)) is not None
    )
