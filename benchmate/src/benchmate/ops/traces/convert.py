"""From a trace to a configuration of operators, each with its shapes and how often it was called; from records to the step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmate.ops.errors import OpsError
from benchmate.ops.traces.graph import build_graph
from benchmate.ops.traces.index_bounds import index_bounds
from benchmate.ops.traces.plan import select_calls
from benchmate.ops.traces.schema import DTYPES, INTEGERS, DeviceRef, Node, TensorRef, Trace
from benchmate.ops.traces.summary import call_signature

GENERATOR = "PyTorch:DefaultDataGenerator"
NAMES = dict(DTYPES.values())


def to_configuration(trace: Trace, device: str | None = None) -> tuple[dict[str, Any], dict[str, int]]:
    """(configuration, {reason: calls left out}). Each input has `count`, how often the trace calls the operator so.

    The build is the schema of the overload. `device` replaces the devices among the arguments.
    """
    chosen = select_calls(trace, build_graph(trace))
    left_out = Counter(reason for _, reason in chosen.skipped)
    counts: Counter[tuple[Any, ...]] = Counter()
    first: dict[tuple[Any, ...], Node] = {}
    for node in chosen.calls:
        if node.is_collective:
            left_out["a collective: `trace replay` under torchrun times it"] += 1
            continue
        key = call_signature(node)
        counts[key] += 1
        first.setdefault(key, node)
    made: dict[str, Any] = {}
    for key, node in first.items():
        try:
            arguments = _arguments(node, device)
        except OpsError as error:
            left_out[str(error)] += counts[key]
            continue
        operator = made.setdefault(
            node.name, {"build_data_generator": GENERATOR, "input_data_generator": GENERATOR, "config": []}
        )
        build = [{"args": [{"type": "str", "value": node.schema}]}]
        entry = next((one for one in operator["config"] if one["build"] == build), None)
        if entry is None:
            entry = {"build": build, "input": []}
            operator["config"].append(entry)
        entry["input"].append({"args": arguments, "count": counts[key]})
    return made, dict(left_out)


def _arguments(node: Node, device: str | None) -> list[dict[str, Any]]:
    limits = {id(ref): limit for ref, limit in index_bounds(node)}
    return [_argument(value, limits, device) for value in node.inputs]


def _argument(value: Any, limits: Mapping[int, int], device: str | None) -> dict[str, Any]:
    if isinstance(value, TensorRef):
        return _tensor(value, limits.get(id(value)))
    if isinstance(value, tuple):
        return {"type": "genericlist", "value": [_argument(one, limits, device) for one in value]}
    if isinstance(value, DeviceRef):
        return {"type": "device", "value": device or value.name}
    if value is None:
        return {"type": "none"}
    if isinstance(value, bool):
        return {"type": "bool", "value": value}
    if isinstance(value, (int, float)):
        return {"type": "int" if isinstance(value, int) else "float", "value": value}
    return {"type": "str", "value": value}


def _tensor(ref: TensorRef, limit: int | None) -> dict[str, Any]:
    if ref.dtype not in NAMES:
        raise OpsError(f"an element type that configurations have not: {ref.dtype}")
    made: dict[str, Any] = {"type": "tensor", "dtype": NAMES[ref.dtype], "shape": list(ref.shape)}
    if ref.dtype in INTEGERS:
        if ref.dtype != "bool":
            made["value_range"] = [0, max(0, (limit or 1) - 1)]
    else:
        made["requires_grad"] = False
    return made


def predict_step(path: str) -> dict[str, Any]:
    """What the records of a converted configuration add up to: {"seconds", "calls", "inputs", "missing"}; `missing` counts the
    calls of inputs that failed. Raises OpsError for a file without such records."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OpsError(
            f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}; expected records of operators"
        ) from error
    total, calls, inputs, missing = 0.0, 0, 0, 0
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise OpsError(f"{path}:{number}: not a record: {error.msg.lower()}") from None
        config = record.get("config") if isinstance(record, Mapping) else None
        count = ((config or {}).get("input") or {}).get("count") if isinstance(config, Mapping) else None
        if not isinstance(count, int):
            continue
        seconds = _seconds(record)
        inputs += 1
        if seconds is None:
            missing += count
        else:
            total += count * seconds
            calls += count
    if not inputs:
        raise OpsError(
            f"{path}: no record with a count; run a configuration that `trace to-config` made, and give its records"
        )
    return {"seconds": total, "calls": calls, "inputs": inputs, "missing": missing}


def _seconds(record: Mapping[str, Any]) -> float | None:
    results = [one for one in record.get("results") or () if one.get("pass") == "forward"]
    if results:
        return float(results[0]["value"])
    times = sorted(((record.get("metric") or {}).get("forward") or {}).get("measure.time") or ())
    if not times:
        return None
    half = len(times) // 2
    return float(times[half] if len(times) % 2 else (times[half - 1] + times[half]) / 2) / 1e3
