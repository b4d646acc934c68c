"""The fidelity of a replay: by operator against a profiler's trace of the same step, and as a whole."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmate.ops.errors import OpsError
from benchmate.ops.statistics import estimate, quantile
from benchmate.ops.traces.graph import Graph
from benchmate.ops.traces.schema import Node
from benchmate.ops.types import JsonMapping, JsonObject

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def read_profile(path: str) -> list[JsonMapping]:
    """Return the events of a Chrome trace that torch's profiler wrote. Raises OpsError for another file."""
    try:
        content = Path(path).read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        data = json.loads(content)
    except OSError as error:
        raise OpsError(
            f"{path}: {error.strerror or error}; --profile takes the profiler's trace of the same step"
        ) from error
    except (EOFError, ValueError) as error:
        raise OpsError(f"{path}: cut off or not JSON: {error}") from None
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
    """Return sums and ratios over the calls that both have; None where there is none. A ratio is replayed to recorded."""
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
