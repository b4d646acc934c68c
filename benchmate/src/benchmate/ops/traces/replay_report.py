"""The outcome of a replay: coverage, times by operator, fidelity; as data and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmate.ops.benchmark import format_seconds
from benchmate.ops.statistics import Estimate, estimate
from benchmate.ops.traces import fidelity
from benchmate.ops.traces.replay import ReplayResult
from benchmate.ops.traces.schema import Node, Trace, tensor_refs


def build_report(trace: Trace, found: ReplayResult, events: list[dict[str, Any]] | None, device: str) -> dict[str, Any]:
    """What a replay gave, as plain data; times in seconds."""
    calls = [call.node for call in found.plan.calls]
    skipped = [(node, reason) for node, reason in found.plan.selection.skipped if node.id not in found.failed]
    step = estimate(found.steps_s)
    made: dict[str, Any] = {
        "file": trace.path,
        "schema": trace.schema,
        "device": device,
        "step": {**_numbers(step), "ci95": step.interval},
        "sum_of_calls_s": sum(estimate(times).median for times in found.calls_s.values()),
        "coverage": _coverage(trace, found, calls, skipped),
        "operators": _operators(calls, found.calls_s),
    }
    told: dict[str, Any] = {}
    if trace.about.get("step_s"):
        told["recorded_step_s"] = trace.about["step_s"]
        told["step_ratio"] = step.median / trace.about["step_s"]
    if events is not None:
        recorded = fidelity.recorded_times(events, found.graph, calls)
        told["by_call"] = fidelity.compare_times(recorded, found.calls_s)
    made["fidelity"] = told or None
    return made


def _coverage(trace: Trace, found: ReplayResult, calls: list[Node], skipped: list[tuple[Node, str]]) -> dict[str, Any]:
    covered: set[int] = set()
    for node in calls:
        covered.update(one.id for one in found.graph.within(node.id) if one.is_operator)
    covered |= found.plan.selection.expanded
    operators = sum(node.is_operator for node in trace.nodes)
    tried = len(calls) + len(found.failed) + len(skipped)
    return {
        "executed": len(calls),
        "skipped": len(skipped),
        "failed": len(found.failed),
        "share": len(calls) / tried if tried else 0.0,
        "of_executable": len(calls) / (len(calls) + len(found.failed)),
        "recorded_operators": operators,
        "recorded_operators_covered": len(covered),
        "expanded": len(found.plan.selection.expanded),
        "substituted_tensors": found.substituted,
        "why_skipped": dict(Counter(f"{node.name}: {reason}" for node, reason in skipped)),
        "why_failed": dict(Counter(f"{found.graph.nodes[node].name}: {error}" for node, error in found.failed.items())),
    }


def _operators(calls: list[Node], calls_s: Mapping[int, list[float]]) -> list[dict[str, Any]]:
    """One row for each operator with its shapes; `seconds` is the median of one step's sum over the calls."""
    rows: dict[tuple[str, str], list[list[float]]] = {}
    for node in calls:
        if node.id in calls_s:
            shapes = " ".join(str(list(ref.shape)).replace(" ", "") for ref in tensor_refs(node.inputs))
            rows.setdefault((node.name, shapes), []).append(calls_s[node.id])
    total = sum(estimate(times).median for times in calls_s.values()) or 1.0
    made = []
    for (name, shapes), series in rows.items():
        each = estimate([value for times in series for value in times])
        together = sum(estimate(times).median for times in series)
        row = {"name": name, "shapes": shapes, "count": len(series), "seconds": together, "share": together / total}
        made.append({**row, **_numbers(each)})
    return sorted(made, key=lambda row: -row["seconds"])


def _numbers(found: Estimate) -> dict[str, Any]:
    return {"median": found.median, "p95": found.p95, "min": found.minimum, "samples": found.count}


def format_report(made: Mapping[str, Any], top: int) -> str:
    """The outcome for a person."""
    coverage, step = made["coverage"], made["step"]
    lines = [
        f"{made['file']}: schema {made['schema']}, replayed on {made['device']}",
        f"coverage    {coverage['executed']} executed, {coverage['skipped']} skipped, {coverage['failed']} failed: "
        f"{coverage['of_executable']:.1%} of the executable; {coverage['recorded_operators_covered']} of "
        f"{coverage['recorded_operators']} recorded operators; {coverage['expanded']} replaced by what they called",
    ]
    lines += [f"skipped     {count} x {why}" for why, count in list(coverage["why_skipped"].items())[:top]]
    lines += [f"failed      {count} x {why}" for why, count in list(coverage["why_failed"].items())[:top]]
    if coverage["substituted_tensors"]:
        lines.append(
            f"made up     {coverage['substituted_tensors']} tensors that no operator gave with their shape and type"
        )
    lines.append(
        f"step        {format_seconds(step['median'])} (median of {step['samples']}, best {format_seconds(step['min'])}); "
        f"its calls alone {format_seconds(made['sum_of_calls_s'])}"
    )
    lines += _told(made["fidelity"] or {})
    lines += ["", f"{'operator':<36} {'calls':>6} {'a step':>10} {'share':>6} {'median':>10} {'p95':>10}  shapes"]
    rows = made["operators"]
    for row in rows[:top]:
        lines.append(
            f"{row['name']:<36} {row['count']:>6} {format_seconds(row['seconds']):>10} {row['share']:>6.1%} "
            f"{format_seconds(row['median']):>10} {format_seconds(row['p95']):>10}  {row['shapes'][:60]}"
        )
    if len(rows) > top:
        lines.append(f"... and {len(rows) - top} more; --top {len(rows)} shows them, --json has them all")
    return "\n".join(lines)


def _told(told: Mapping[str, Any]) -> list[str]:
    lines = []
    if "step_ratio" in told:
        lines.append(
            f"fidelity    {told['step_ratio']:.3g} of the recorded program's step, {format_seconds(told['recorded_step_s'])}"
        )
    by_call = told.get("by_call")
    if by_call:
        lines.append(
            f"profile     calls {format_seconds(by_call['recorded_s'])} in the profiler's trace, {format_seconds(by_call['replayed_s'])} "
            f"replayed: {by_call['ratio']:.3g}; median ratio {by_call['ratio_median']:.3g} "
            f"({by_call['ratio_p5']:.3g} to {by_call['ratio_p95']:.3g}); shares of time in common "
            f"{by_call['shares_in_common']:.0%}"
        )
    elif "by_call" in told:
        lines.append("profile     has no call of this trace: is it of the same step?")
    return lines
