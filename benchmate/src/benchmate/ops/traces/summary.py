"""A summary of a trace: operators by count and size, devices, element types, labels, process groups and collectives."""

from __future__ import annotations

from collections import Counter

from benchmate.ops.traces.collectives import recorded_groups, recorded_ranks
from benchmate.ops.traces.graph import build_graph
from benchmate.ops.traces.plan import build_plan, select_calls
from benchmate.ops.traces.schema import Node, TensorRef, Trace, tensor_refs
from benchmate.ops.types import JsonMapping, JsonObject

Signature = tuple[object, ...]


def summarise_trace(trace: Trace) -> JsonObject:
    """Return the figures of a trace, as plain data. Bytes of a collective are those of its inputs."""
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
    """Return what makes two calls the same measurement: the overload, and arguments up to which tensors they are."""
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
        f"different; {summary['expanded']} operators replaced by what they called",
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
                lines.append(f"... and {len(rows) - top} more; --top {len(rows)} shows them")
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
