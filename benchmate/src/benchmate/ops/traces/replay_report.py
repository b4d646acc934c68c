"""The report of a replay: coverage, times by operator, fidelity to a profiler's trace of the same step. As data and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from benchmate.ops.base import JsonMapping, JsonObject, OpsError, printable
from benchmate.ops.benchmark import format_seconds
from benchmate.ops.json_files import parse_json, read_unpacked
from benchmate.ops.statistics import Estimate, estimate, quantile
from benchmate.ops.traces.graph import Graph
from benchmate.ops.traces.replay import ReplayResult
from benchmate.ops.traces.schema import Node, Trace, tensor_refs

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def build_report(trace: Trace, result: ReplayResult, events: Sequence[JsonMapping] | None, device: str) -> JsonObject:
    """Return the result of a replay as plain data. Times in seconds. `events` come from the profiler's trace."""
    calls = [call.node for call in result.plan.calls]
    step = estimate(result.steps_s)
    compared: JsonObject = {}
    if trace.about.get("step_s"):
        compared["recorded_step_s"] = trace.about["step_s"]
        compared["step_ratio"] = step.median / trace.about["step_s"]
    if events is not None:
        recorded = recorded_times(events, result.graph, calls)
        compared["by_call"] = compare_times(recorded, result.calls_s)
    return {
        "file": trace.path,
        "schema": trace.schema,
        "device": device,
        "step": {**_numbers(step), "ci95": step.ci95},
        "sum_of_calls_s": sum(estimate(times).median for times in result.calls_s.values()),
        "coverage": _coverage(trace, result, calls),
        "operators": _operators(calls, result.calls_s),
        "fidelity": compared or None,
    }


def _coverage(trace: Trace, result: ReplayResult, calls: list[Node]) -> JsonObject:
    selection, failed = result.plan.selection, result.failed
    skipped = [(node, reason) for node, reason in selection.skipped if node.id not in failed]
    covered = {inner.id for node in calls for inner in result.graph.within(node.id) if inner.is_operator}
    tried = len(calls) + len(failed) + len(skipped)
    return {
        "executed": len(calls),
        "skipped": len(skipped),
        "failed": len(failed),
        "share": len(calls) / tried if tried else 0.0,
        "of_executable": len(calls) / (len(calls) + len(failed)),
        "recorded_operators": sum(node.is_operator for node in trace.nodes),
        "recorded_operators_covered": len(covered | selection.expanded),
        "expanded": len(selection.expanded),
        "substituted_tensors": result.substituted,
        "why_skipped": dict(Counter(f"{node.name}: {reason}" for node, reason in skipped)),
        "why_failed": dict(Counter(f"{result.graph.nodes[node].name}: {error}" for node, error in failed.items())),
    }


def _operators(calls: list[Node], calls_s: Mapping[int, list[float]]) -> list[JsonObject]:
    """Return a row for each operator with its shapes. `seconds` is the median of a step's sum over the calls."""
    series_of: dict[tuple[str, str], list[list[float]]] = {}
    for node in calls:
        if node.id in calls_s:
            shapes = " ".join(str(list(ref.shape)).replace(" ", "") for ref in tensor_refs(node.inputs))
            series_of.setdefault((node.name, shapes), []).append(calls_s[node.id])
    total = sum(estimate(times).median for times in calls_s.values()) or 1.0
    rows = []
    for (name, shapes), series in series_of.items():
        per_call = estimate([value for times in series for value in times])
        seconds = sum(estimate(times).median for times in series)
        row = {"name": name, "shapes": shapes, "count": len(series), "seconds": seconds, "share": seconds / total}
        rows.append({**row, **_numbers(per_call)})
    return sorted(rows, key=lambda row: -row["seconds"])


def _numbers(times: Estimate) -> JsonObject:
    return {"median": times.median, "p95": times.p95, "min": times.min, "samples": times.samples}


def read_profile(path: str) -> list[JsonMapping]:
    """Return the events of a Chrome trace that torch's profiler wrote. Raises OpsError for another file."""
    data = parse_json(read_unpacked(path, "--profile takes the profiler's trace of the same step"), path)
    events = data.get("traceEvents") if isinstance(data, Mapping) else None
    if not isinstance(events, list):
        raise OpsError(f"{path}: no trace of torch's profiler: it has no 'traceEvents'")
    return [event for event in events if isinstance(event, Mapping) and event.get("ph") == "X"]


def recorded_times(events: Sequence[JsonMapping], graph: Graph, calls: Sequence[Node]) -> dict[int, float]:
    """Return the seconds of each call in the profiler's trace: of its kernels where it has any, else of the operator on the host.

    The two files are joined by the number that torch gave each call of an operator (`Record function id`).
    """
    host: dict[int, float] = {}
    outer: dict[int, int] = {}  # external id -> record function id
    kernels: dict[int, float] = {}
    for event in events:
        arguments = event.get("args") or {}
        number = arguments.get("Record function id")
        # Kernels name the innermost operator that launched them, by an external id of the profiler's own.
        if number is not None and event.get("cat") in ("cpu_op", "user_annotation", "cpu_instant_event"):
            host[int(number)] = float(event.get("dur") or 0.0) / 1e6
            outer[int(arguments.get("External id", number))] = int(number)
    for event in events:
        if event.get("cat") in ON_DEVICE:
            external = (event.get("args") or {}).get("External id")
            if external is not None:
                number = outer.get(int(external), int(external))
                kernels[number] = kernels.get(number, 0.0) + float(event.get("dur") or 0.0) / 1e6
    recorded: dict[int, float] = {}
    for node in calls:
        if node.rf_id is None or node.rf_id not in host:
            continue
        on_device = sum(kernels.get(inner.rf_id or -1, 0.0) for inner in graph.within(node.id))
        recorded[node.id] = on_device or host[node.rf_id]
    return recorded


def compare_times(recorded: Mapping[int, float], replayed: Mapping[int, Sequence[float]]) -> JsonObject | None:
    """Return sums and ratios over the calls that both have. None where there is none. A ratio is replayed to recorded."""
    both = [
        (recorded[node], estimate(times).median)
        for node, times in replayed.items()
        if recorded.get(node, 0) > 0 and times
    ]
    if not both:
        return None
    was, now = (sum(seconds) for seconds in zip(*both, strict=True))
    ratios = sorted(after / before for before, after in both)
    # How much of the step is alike: each call's share of the time, recorded and replayed, in common.
    common = sum(min(before / was, after / now) for before, after in both)
    return {
        "calls": len(both),
        "recorded_s": was,
        "replayed_s": now,
        "ratio": now / was,
        "ratio_median": quantile(ratios, 0.5),
        "ratio_p5": quantile(ratios, 0.05),
        "ratio_p95": quantile(ratios, 0.95),
        "shares_in_common": common,
    }


def format_report(report: JsonMapping, top: int) -> str:
    """Return the report for a person."""
    coverage, step = report["coverage"], report["step"]
    lines = [
        f"{report['file']}: schema {report['schema']}, replayed on {report['device']}",
        f"coverage    {coverage['executed']} executed, {coverage['skipped']} skipped, {coverage['failed']} failed: "
        f"{coverage['of_executable']:.1%} of the executable; {coverage['recorded_operators_covered']} of "
        f"{coverage['recorded_operators']} recorded operators; {coverage['expanded']} replaced by the operators that they called",
    ]
    lines += [f"skipped     {count} x {why}" for why, count in list(coverage["why_skipped"].items())[:top]]
    lines += [f"failed      {count} x {why}" for why, count in list(coverage["why_failed"].items())[:top]]
    if coverage["substituted_tensors"]:
        lines.append(
            f"made up     {coverage['substituted_tensors']} tensors that no operator gave with their shape and type"
        )
    lines.append(
        f"step        {format_seconds(step['median'])} (median of {step['samples']}, best {format_seconds(step['min'])}); "
        f"its calls alone {format_seconds(report['sum_of_calls_s'])}"
    )
    lines += _format_fidelity(report["fidelity"] or {})
    lines += ["", f"{'operator':<36} {'calls':>6} {'a step':>10} {'share':>6} {'median':>10} {'p95':>10}  shapes"]
    rows = report["operators"]
    for row in rows[:top]:
        lines.append(
            f"{row['name']:<36} {row['count']:>6} {format_seconds(row['seconds']):>10} {row['share']:>6.1%} "
            f"{format_seconds(row['median']):>10} {format_seconds(row['p95']):>10}  {row['shapes'][:60]}"
        )
    if len(rows) > top:
        lines.append(f"... and {len(rows) - top} more. --top {len(rows)} shows them, --json has them all")
    return printable("\n".join(lines))


def format_left_out(coverage: JsonMapping) -> str:
    """Return a line about left-out operators, which the time of a step lacks. Empty when all were carried out."""
    missing = coverage["skipped"] + coverage["failed"]
    total = coverage["executed"] + missing
    return f"not carried out: {missing} of {total}. The time of a step is without them" if missing else ""


def _format_fidelity(compared: JsonMapping) -> list[str]:
    lines = []
    if "step_ratio" in compared:
        recorded = format_seconds(compared["recorded_step_s"])
        lines.append(f"fidelity    {compared['step_ratio']:.3g} of the recorded program's step, {recorded}")
    by_call = compared.get("by_call")
    if by_call:
        recorded, replayed = (format_seconds(by_call[key]) for key in ("recorded_s", "replayed_s"))
        lines.append(
            f"profile     calls {recorded} in the profiler's trace, {replayed} replayed: {by_call['ratio']:.3g}; "
            f"median ratio {by_call['ratio_median']:.3g} ({by_call['ratio_p5']:.3g} to {by_call['ratio_p95']:.3g}); "
            f"shares of time in common {by_call['shares_in_common']:.0%}"
        )
    elif "by_call" in compared:
        lines.append("profile     has no call of this trace: is it of the same step?")
    return lines
