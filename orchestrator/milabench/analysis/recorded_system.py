"""What a run says about the machines and the software it ran on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from milabench.analysis.measure import Measurement
from milabench.events.json_access import as_mapping


def described_system(manifest: Mapping[str, Any], measured: Iterable[Measurement]) -> Mapping[str, Any]:
    """Return the system as the manifest holds it, or as milabench 1.3 described it in its records, in the same form."""
    return as_mapping(manifest.get("system")) or _system_of_1_3(measured)


def versions(measured: Iterable[Measurement]) -> dict[str, str]:
    """Return versions by name, from the meta records: Python and the packages that decide speed; several versions are joined."""
    versions_of: dict[str, dict[str, None]] = {}
    for measurement in measured:
        meta = measurement.meta
        packages = as_mapping(meta.get("packages"))
        recorded = {"python": meta.get("python"), **{name: packages.get(name) for name in ("torch", "jax", "numpy")}}
        for name, version in recorded.items():
            if isinstance(version, str) and version:
                versions_of.setdefault(name, {})[version] = None
    return {name: ", ".join(versions) for name, versions in versions_of.items()}


def recorded_accelerators(measured: Iterable[Measurement]) -> tuple[Mapping[str, Any], ...]:
    """Return what the meta records say of each accelerator (driver, firmware, clocks, power limit), by node and number."""
    by_device: dict[tuple[str, str], Mapping[str, Any]] = {}
    for measurement in measured:
        accelerators = measurement.meta.get("accelerators")
        for device in accelerators if isinstance(accelerators, list) else ():
            if isinstance(device, Mapping):
                node = str(measurement.meta.get("hostname") or "")
                by_device.setdefault((node, str(device.get("index"))), {"hostname": node, **device})
    return tuple(device for _, device in sorted(by_device.items(), key=lambda item: item[0]))


def _system_of_1_3(measured: Iterable[Measurement]) -> Mapping[str, Any]:
    """Return the machine as milabench 1.3 described it in its meta records, in the form of our manifests."""
    for measurement in measured:
        meta = measurement.meta
        cpu, accelerators = as_mapping(meta.get("cpu")), as_mapping(meta.get("accelerators"))
        if not cpu and not accelerators:
            continue
        devices = []
        for index, device in enumerate(as_mapping(accelerators.get("gpus")).values()):
            memory = as_mapping(as_mapping(device).get("memory")).get("total")
            devices.append({"index": index, "name": str(as_mapping(device).get("product", "")), "memory_MiB": memory})
        system = as_mapping(meta.get("os"))
        node = {
            "name": "local",
            "hostname": str(system.get("nodename", "")),
            "cpu": {"model": str(cpu.get("brand", "")), "count": cpu.get("count")},
            "os": str(system.get("sysname", "")),
            "kernel": str(system.get("release", "")),
            "devices": devices,
        }
        return {"arch": accelerators.get("arch"), "nodes": [node]}
    return {}
