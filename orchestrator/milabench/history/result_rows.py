"""A run in the columns that MLPerf Inference's result lists and system descriptions have, for those who keep such lists.

github mlcommons/inference b66003e, tools/submission/submission_checker (columns and keys). Wording: github mlcommons/policies
c195f80, MLPerf_Results_Messaging_Guidelines. Ours are not MLPerf benchmarks: the columns of a model and of a scenario stay empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from milabench.analysis.summary_model import SOUND, BenchSummary, Summary
from milabench.events.values import as_mapping
from milabench.report.csv import csv_table

UNVERIFIED: Final = "unverified"
NOT_VERIFIED: Final = "Result not verified by MLCommons Association."
_NOTE: Final = f"{UNVERIFIED}; {NOT_VERIFIED} Not an MLPerf® benchmark: these are milabench's own, in the same columns."
COLUMNS: Final = (
    *("Organization", "Availability", "Division", "SystemType", "SystemName", "Platform", "Model", "MlperfModel"),
    *("Scenario", "Result", "Accuracy", "number_of_nodes", "host_processor_model_name", "host_processors_per_node"),
    *("host_processor_core_count", "accelerator_model_name", "accelerators_per_node", "total_accelerators", "Location"),
    *("framework", "operating_system", "notes", "compliance", "errors", "version", "inferred", "has_power", "Units"),
    *("weight_data_types", "design_power_watts", "PrivateID"),
)
DESCRIPTION: Final = (
    *("division", "submitter", "status", "system_name", "system_type", "system_type_detail", "number_of_nodes"),
    *("host_processor_model_name", "host_processors_per_node", "host_processor_core_count", "host_processor_frequency"),
    *("host_processor_caches", "host_processor_interconnect", "host_memory_capacity", "host_memory_configuration"),
    *("host_storage_capacity", "host_storage_type", "host_networking", "host_networking_topology"),
    *("host_network_card_count", "accelerators_per_node", "accelerator_model_name", "accelerator_memory_capacity"),
    *("accelerator_memory_configuration", "accelerator_frequency", "accelerator_host_interconnect"),
    *("accelerator_interconnect", "accelerator_interconnect_topology", "accelerator_on-chip_memories", "cooling"),
    *("hw_notes", "framework", "other_software_stack", "operating_system", "sw_notes"),
)
_FRAMEWORKS: Final = ("torch", "jax", "vllm", "tensorflow")


def result_rows(summaries: Sequence[Summary], submitter: str = "") -> str:
    """Return a row for each benchmark that has a number, as CSV. Unrecorded values are empty.

    `has_power` is always False: devices' own power readings are no measurement by MLPerf's rules.
    """
    rows = (
        {**_facts(summary), **_result(summary, bench), "Organization": submitter}
        for summary in summaries
        for bench in summary.benchmarks
        if bench.score is not None
    )
    return csv_table(COLUMNS, rows)


def system_description(summary: Summary, submitter: str = "") -> str:
    """Return the system of a run as JSON with every key of such a description. Unrecorded values are empty."""
    facts = _facts(summary)
    node = summary.nodes[0] if summary.nodes else {}
    memory = sorted({int(device.get("memory_MiB") or 0) for device in _accelerators(summary)} - {0})
    known: dict[str, Any] = {
        **facts,
        "submitter": submitter,
        "system_name": facts["SystemName"],
        "host_memory_capacity": _gib(node.get("memory_MiB")),
        "accelerator_memory_capacity": ", ".join(_gib(each) for each in memory),
        "other_software_stack": ", ".join(f"{name} {version}" for name, version in sorted(summary.software.items())),
        "sw_notes": f"{_NOTE} Measured by milabench {summary.version}.",
    }
    return json.dumps({name: known.get(name, "") for name in DESCRIPTION}, indent=2, ensure_ascii=False) + "\n"


def _result(summary: Summary, bench: BenchSummary) -> dict[str, object]:
    word = bench.validity if bench.validity not in SOUND else None
    errors = "; ".join((*([word] if word else []), *bench.doubts))
    return {
        "Model": bench.bench,
        "Result": bench.score,
        "Units": bench.units,
        "compliance": UNVERIFIED,
        "errors": errors,
        "inferred": "0",
        "has_power": "False",
        "version": f"milabench {summary.version}".strip(),
        "notes": _NOTE,
        "PrivateID": summary.run,
    }


def _facts(summary: Summary) -> dict[str, object]:
    """Return the known facts of a run's machine. Nodes that differ are named in sequence."""
    nodes, accelerators = summary.nodes, _accelerators(summary)
    # One number for all nodes holds only where they are alike.
    each = {sum(device in accelerators for device in _devices(node)) for node in nodes}
    per_node: int | str = each.pop() if len(each) == 1 else ""
    cpus = [as_mapping(node.get("cpu")) for node in nodes]
    details = [as_mapping(as_mapping(node.get("details")).get("cpu")) for node in nodes]
    software = summary.software
    return {
        "SystemName": str(summary.system.get("name") or _joined(node.get("hostname") for node in nodes)),
        "number_of_nodes": len(nodes) or "",
        "host_processor_model_name": _joined(cpu.get("model") for cpu in cpus),
        "host_processors_per_node": _joined(detail.get("sockets") for detail in details),
        "host_processor_core_count": _joined(detail.get("cores") for detail in details),
        "accelerator_model_name": _joined(device.get("name") for device in accelerators),
        "accelerators_per_node": per_node,
        "total_accelerators": len(accelerators) if per_node == "" else len(nodes) * per_node,
        "framework": ", ".join(f"{name} {software[name]}" for name in _FRAMEWORKS if name in software),
        "operating_system": _joined(node.get("os") for node in nodes),
    }


def _devices(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [device for device in node.get("devices") or [] if isinstance(device, Mapping)]


def _accelerators(summary: Summary) -> list[Mapping[str, Any]]:
    return [device for device in summary.devices if device.get("arch") != "cpu"]


def _joined(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))


def _gib(mebibytes: object) -> str:
    return f"{mebibytes / 1024:.6g} GiB" if isinstance(mebibytes, int | float) and mebibytes > 0 else ""
