"""What is in a trace: operators by count and size, devices, element types, labels, process groups and collectives."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmate.ops.traces.graph import build_graph
from benchmate.ops.traces.plan import build_plan, select_calls
from benchmate.ops.traces.process_groups import recorded_groups, recorded_ranks
from benchmate.ops.traces.schema import Node, Trace, tensor_refs


def summarise_trace(trace: Trace) -> dict[str, Any]:
    """The figures of a trace, as plain data. Bytes of a collective are those of its inputs."""
    graph = build_graph(trace)
    chosen = select_calls(trace, graph)
    made = build_plan(graph, chosen)
    operators = [node for node in trace.nodes if node.is_operator]
    refs = [ref for node in operators for ref in tensor_refs((node.inputs, node.outputs))]
    collectives = [node for node in chosen.calls if node.is_collective]
    return {
        "file": trace.path,
        "schema": trace.schema,
        "about": dict(trace.about),
        "nodes": len(trace.nodes),
        "operators": len(operators),
        "calls": len(chosen.calls),
        "expanded": len(chosen.expanded),
        "unique": len({call_signature(node) for node in chosen.calls}),
        "skipped": dict(Counter(reason for _, reason in chosen.skipped)),
        "devices": dict(Counter(ref.device for ref in refs)),
        "dtypes": dict(Counter(ref.dtype for ref in refs)),
        "given_bytes": sum(made.sizes[number] for number in made.given),
        "storages": len(graph.generations),
        "ranks": recorded_ranks(trace),
        "groups": list(recorded_groups(trace).values()),
        "collectives": _table(collectives),
        "by_operator": _table([node for node in chosen.calls if not node.is_collective]),
    }


def call_signature(node: Node) -> tuple[Any, ...]:
    """What makes two calls the same measurement: the overload, and arguments up to which tensors they are."""
    return (node.name, node.schema, tuple(_sign(value) for value in node.inputs))


def _sign(value: Any) -> Any:
    if isinstance(value, tuple):
        return ("list", *map(_sign, value))
    refs = list(tensor_refs(value))
    if refs:
        return (refs[0].dtype, refs[0].shape, refs[0].strides, refs[0].device)
    # 1, 1.0 and True are equal, and not the same argument.
    return (type(value).__name__, value)


def _table(nodes: list[Node]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        row = found.setdefault(node.name, {"name": node.name, "count": 0, "unique": set(), "bytes": 0})
        row["count"] += 1
        row["unique"].add(call_signature(node))
        row["bytes"] += sum(ref.bytes for ref in tensor_refs(node.inputs))
    rows = [{**row, "unique": len(row["unique"])} for row in found.values()]
    return sorted(rows, key=lambda row: (-row["count"], row["name"]))


def format_summary(found: dict[str, Any], top: int) -> str:
    """The figures for a person."""
    about = found["about"]
    lines = [
        f"{found['file']}: schema {found['schema']}"
        + (f", torch {about['torch']}" if "torch" in about else "")
        + (f", rank {about['rank']} of {about['ranks']}" if about.get("ranks", 1) > 1 else "")
        + (f", step {about['step_s'] * 1e3:.4g} ms when it was not recorded" if about.get("step_s") else ""),
        f"{found['nodes']} nodes, {found['operators']} of operators; {found['calls']} calls, {found['unique']} of them "
        f"different; {found['expanded']} operators replaced by what they called",
        "devices     " + _counts(found["devices"]),
        "dtypes      " + _counts(found["dtypes"]),
        f"memory      {found['storages']} storages; {found['given_bytes'] / 2**20:.4g} MiB there before",
    ]
    lines += [f"skipped     {count} x {reason}" for reason, count in found["skipped"].items()]
    lines += [f"group       {one.get('pg_name')}: {one.get('group_size')} ranks, {one.get('backend_config')}"
              for one in found["groups"]]  # fmt: skip
    for title, rows in (("collective", found["collectives"]), ("operator", found["by_operator"])):
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
