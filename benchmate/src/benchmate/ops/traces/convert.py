"""From a trace to a configuration of operators, each with its shapes and how often it was called; from records to the step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmate.ops.arguments import DEFAULT_GENERATOR, DTYPES
from benchmate.ops.errors import OpsError
from benchmate.ops.statistics import quantile
from benchmate.ops.traces.graph import build_graph
from benchmate.ops.traces.index_bounds import index_bounds
from benchmate.ops.traces.plan import select_calls
from benchmate.ops.traces.schema import INTEGERS, DeviceRef, Node, TensorRef, Trace
from benchmate.ops.traces.summary import Signature, call_signature
from benchmate.ops.types import JsonMapping, JsonObject

KINDS = {bool: "bool", int: "int", float: "float"}
# torch's names of element types -> those of a configuration: the short one, which stands first, where there are two.
NAMES = {name: short for short, name in reversed(DTYPES.items())}


def to_configuration(trace: Trace, device: str | None = None) -> tuple[JsonObject, dict[str, int]]:
    """Return (configuration, {reason: calls left out}). Each input has `count`, how often the trace calls the operator so.

    The build is the schema of the overload. `device` replaces the devices among the arguments.
    """
    chosen = select_calls(trace, build_graph(trace))
    left_out = Counter(reason for _, reason in chosen.skipped)
    counts: Counter[Signature] = Counter()
    first: dict[Signature, Node] = {}
    for node in chosen.calls:
        if node.is_collective:
            left_out["a collective: `trace replay` under torchrun times it"] += 1
            continue
        # Calls that differ only in which tensors they have are one measurement, made once and weighted by its count.
        key = call_signature(node)
        counts[key] += 1
        first.setdefault(key, node)
    operators: JsonObject = {}
    entries: dict[tuple[str, str], list[JsonObject]] = {}
    for key, node in first.items():
        try:
            limits = {id(ref): limit for ref, limit in index_bounds(node)}
            arguments = [_argument(value, limits, device) for value in node.inputs]
        except OpsError as error:
            left_out[str(error)] += counts[key]
            continue
        if (node.name, node.schema) not in entries:
            inputs = entries[node.name, node.schema] = []
            generators = dict.fromkeys(("build_data_generator", "input_data_generator"), DEFAULT_GENERATOR)
            operator = operators.setdefault(node.name, {**generators, "config": []})
            operator["config"].append({"build": [{"args": [{"type": "str", "value": node.schema}]}], "input": inputs})
        entries[node.name, node.schema].append({"args": arguments, "count": counts[key]})
    return operators, dict(left_out)


def _argument(value: object, limits: Mapping[int, int], device: str | None) -> JsonObject:
    if isinstance(value, TensorRef):
        return _tensor(value, limits.get(id(value)))
    if isinstance(value, tuple):
        return {"type": "genericlist", "value": [_argument(item, limits, device) for item in value]}
    if isinstance(value, DeviceRef):
        return {"type": "device", "value": device or value.name}
    if value is None:
        return {"type": "none"}
    return {"type": KINDS.get(type(value), "str"), "value": value}


def _tensor(ref: TensorRef, limit: int | None) -> JsonObject:
    if ref.dtype not in NAMES:
        raise OpsError(f"an element type that configurations have not: {ref.dtype}")
    argument: JsonObject = {"type": "tensor", "dtype": NAMES[ref.dtype], "shape": list(ref.shape)}
    if ref.dtype in INTEGERS:
        if ref.dtype != "bool":
            # With indices that the table does not have the operator would fail, or read other memory.
            argument["value_range"] = [0, max(0, (limit or 1) - 1)]
    else:
        argument["requires_grad"] = False
    return argument


def predict_step(path: str) -> JsonObject:
    """Return what the records of a converted configuration add up to: {"seconds", "calls", "inputs", "missing"}.

    `missing` counts the calls of inputs that failed. Raises OpsError for a file without such records.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise OpsError(f"{path}: {reason}; expected records of operators") from error
    total, calls, inputs, missing = 0.0, 0, 0, 0
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise OpsError(f"{path}:{number}: not a record: {error.msg.lower()}") from None
        config = record.get("config") if isinstance(record, Mapping) else None
        count = (config.get("input") or {}).get("count") if isinstance(config, Mapping) else None
        if not isinstance(count, int):
            continue
        inputs += 1
        seconds = _forward_seconds(record)
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


def _forward_seconds(record: JsonMapping) -> float | None:
    """Return the time of a forward pass, of the first mode or the median of the original's list; None without one."""
    for result in record.get("results") or ():
        if result.get("pass") == "forward":
            return float(result["value"])
    times_ms = ((record.get("metric") or {}).get("forward") or {}).get("measure.time")
    return quantile(sorted(times_ms), 0.5) / 1e3 if times_ms else None
