"""Summaries of a trace: figures for a person, a configuration of its operators, from their records the time of its step."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping

from benchmate.ops.arguments import DEFAULT_GENERATOR, DTYPES
from benchmate.ops.base import JsonMapping, JsonObject, OpsError, printable
from benchmate.ops.json_files import read_unpacked
from benchmate.ops.statistics import quantile
from benchmate.ops.traces.collectives import recorded_groups, recorded_ranks
from benchmate.ops.traces.graph import build_graph
from benchmate.ops.traces.index_bounds import index_bounds
from benchmate.ops.traces.plan import Obstacle, build_plan, select_calls, static_obstacle
from benchmate.ops.traces.replay_calls import DeviceOf, map_devices
from benchmate.ops.traces.schema import INTEGERS, DeviceRef, Node, TensorRef, Trace, tensor_refs

Signature = tuple[object, ...]


def summarise_trace(trace: Trace) -> JsonObject:
    """Return the figures of a trace, as plain data. Bytes of a collective are its inputs'."""
    graph = build_graph(trace)
    selection = select_calls(trace, graph)
    plan = build_plan(graph, selection)
    operators = [node for node in trace.nodes if node.is_operator]
    refs = [ref for node in operators for ref in tensor_refs((node.inputs, node.outputs))]
    collectives = [node for node in selection.calls if node.is_collective]
    return {
        "file": trace.path,
        "schema": trace.schema,
        "about": dict(trace.about),
        "nodes": len(trace.nodes),
        "operators": len(operators),
        "calls": len(selection.calls),
        "expanded": len(selection.expanded),
        "unique": len({call_signature(node) for node in selection.calls}),
        "skipped": dict(Counter(reason for _, reason in selection.skipped)),
        "devices": dict(Counter(ref.device for ref in refs)),
        "dtypes": dict(Counter(ref.dtype for ref in refs)),
        "given_bytes": sum(plan.sizes[number] for number in plan.given),
        "storages": len(graph.generations),
        "ranks": recorded_ranks(trace),
        "groups": list(recorded_groups(trace).values()),
        "collectives": _table(collectives),
        "by_operator": _table([node for node in selection.calls if not node.is_collective]),
    }


def call_signature(node: Node) -> Signature:
    """Return the key of equal measurements: the overload, and arguments without the identity of tensors."""
    return (node.name, node.schema, *map(_value_signature, node.inputs))


def _value_signature(value: object) -> Signature:
    if isinstance(value, tuple):
        return ("list", *map(_value_signature, value))
    if isinstance(value, TensorRef):
        return (value.dtype, value.shape, value.strides, value.device)
    # 1, 1.0 and True are equal, and not the same argument.
    return (type(value).__name__, value)


def _table(nodes: list[Node]) -> list[JsonObject]:
    by_name: dict[str, list[Node]] = {}
    for node in nodes:
        by_name.setdefault(node.name, []).append(node)
    rows = [
        {
            "name": name,
            "count": len(calls),
            "unique": len(set(map(call_signature, calls))),
            "bytes": sum(ref.bytes for call in calls for ref in tensor_refs(call.inputs)),
        }
        for name, calls in by_name.items()
    ]
    return sorted(rows, key=lambda row: (-row["count"], row["name"]))


def format_summary(summary: JsonMapping, top: int) -> str:
    """Return the figures for a person."""
    about = summary["about"]
    lines = [
        f"{summary['file']}: schema {summary['schema']}"
        + (f", torch {about['torch']}" if "torch" in about else "")
        + (f", rank {about['rank']} of {about['ranks']}" if about.get("ranks", 1) > 1 else "")
        + (f", step {about['step_s'] * 1e3:.4g} ms when it was not recorded" if about.get("step_s") else ""),
        f"{summary['nodes']} nodes, {summary['operators']} of operators; {summary['calls']} calls, {summary['unique']} of them "
        f"different; {summary['expanded']} operators replaced by the operators that they called",
        "devices     " + _counts(summary["devices"]),
        "dtypes      " + _counts(summary["dtypes"]),
        f"memory      {summary['storages']} storages; {summary['given_bytes'] / 2**20:.4g} MiB there before",
    ]
    lines += [f"skipped     {count} x {reason}" for reason, count in summary["skipped"].items()]
    for group in summary["groups"]:
        name, size, backend = (group.get(key) for key in ("pg_name", "group_size", "backend_config"))
        lines.append(f"group       {name}: {size} ranks, {backend}")
    for title, rows in (("collective", summary["collectives"]), ("operator", summary["by_operator"])):
        if rows:
            lines += ["", f"{title:<44} {'calls':>7} {'different':>9} {'MiB in':>10}"]
            lines += [
                f"{row['name']:<44} {row['count']:>7} {row['unique']:>9} {row['bytes'] / 2**20:>10.4g}"
                for row in rows[:top]
            ]
            if len(rows) > top:
                lines.append(f"... and {len(rows) - top} more. --top {len(rows)} shows them")
    return printable("\n".join(lines))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


KINDS = {bool: "bool", int: "int", float: "float"}
# torch's names of element types -> those of a configuration: the short one, which stands first, where there are two.
NAMES = {name: short for short, name in reversed(DTYPES.items())}


def to_configuration(
    trace: Trace, device: str | None = None, obstacle: Obstacle = static_obstacle
) -> tuple[JsonObject, dict[str, int]]:
    """Return (configuration, {reason: calls left out}). Each input has `count`, how often the trace calls the operator so.

    The build is the schema of the overload. A device among the arguments is the run's. `device` replaces it where
    given. `obstacle` tells why the machine that is to run it cannot run an operator.
    """
    device_of = map_devices(trace, device or "")
    chosen = select_calls(trace, build_graph(trace), obstacle)
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
            arguments = [_argument(value, limits, device_of) for value in node.inputs]
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


def _argument(value: object, limits: Mapping[int, int], device_of: DeviceOf) -> JsonObject:
    if isinstance(value, TensorRef):
        return _tensor(value, limits.get(id(value)))
    if isinstance(value, tuple):
        return {"type": "genericlist", "value": [_argument(item, limits, device_of) for item in value]}
    if isinstance(value, DeviceRef):
        target = device_of(value.name)
        return {"type": "device", "value": target} if target else {"type": "device"}
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
    """Return the sum of a converted configuration's records: {"seconds", "calls", "inputs", "missing"}.

    `missing` counts the calls of inputs that failed. Raises OpsError for a file without such records.
    """
    lines = read_unpacked(path, "Expected records of operators").splitlines()
    total, calls, inputs, missing = 0.0, 0, 0, 0
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            count = _count(record)
            seconds = _forward_seconds(record) if count is not None else None
            total = _finite(total + (count or 0) * (seconds or 0.0))
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
            raise OpsError(f"{path}:{number}: not a record of an operator") from None
        if count is None:
            continue
        inputs += 1
        if seconds is None:
            missing += count
        else:
            calls += count
    if not inputs:
        raise OpsError(
            f"{path}: no record with a count. Run a configuration that `trace to-config` made, and give its records"
        )
    return {"seconds": total, "calls": calls, "inputs": inputs, "missing": missing}


def _count(record: JsonMapping) -> int | None:
    """Return how often the trace calls the input of a record. None for a record of something else."""
    config = record.get("config")
    count = (config.get("input") or {}).get("count") if isinstance(config, Mapping) else None
    return int(count) if isinstance(count, int) else None


def _forward_seconds(record: JsonMapping) -> float | None:
    """Return the time of a forward pass, of the first mode or the median of the original's list. None without it.

    Raises ValueError, or Python's errors for values of other types, where it is no time.
    """
    for result in record.get("results") or ():
        if result.get("pass") == "forward":
            return _finite(float(result["value"]))
    times_ms = ((record.get("metric") or {}).get("forward") or {}).get("measure.time")
    return _finite(quantile(sorted(times_ms), 0.5) / 1e3) if times_ms else None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError
    return value
