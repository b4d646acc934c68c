"""A run's summary -> the rows that a store or a table file holds of it; the columns are results-store.md."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.events.json_access import as_mapping

Row = tuple[Any, ...]

_STAMP = re.compile(r"\.(\d{4}-\d\d-\d\d)_(\d\d)[-:_](\d\d)[-:_](\d\d)")

# table -> its columns, each with its SQL type; the first ones are the key
RUNS: Mapping[str, str] = {
    "run": "TEXT",
    "name": "TEXT",
    "created": "TEXT",
    "verdict": "TEXT",
    "profile": "TEXT",
    "version": "TEXT",
    "host": "TEXT",
    "device": "TEXT",
    "nodes": "INTEGER",
    "devices": "INTEGER",
    "score": "DOUBLE PRECISION",
    "digest": "TEXT",
    "summary": "TEXT",
}
RESULTS: Mapping[str, str] = {
    "run": "TEXT",
    "bench": "TEXT",
    "outcome": "TEXT",
    "perf": "DOUBLE PRECISION",
    "units": "TEXT",
    "direction": "TEXT",
    "ci95_low": "DOUBLE PRECISION",
    "ci95_high": "DOUBLE PRECISION",
    "instances": "INTEGER",
    "replicates": "INTEGER",
    "spread_within": "DOUBLE PRECISION",
    "spread_devices": "DOUBLE PRECISION",
    "spread_processes": "DOUBLE PRECISION",
    "memory_peak_mib": "DOUBLE PRECISION",
    "energy_j": "DOUBLE PRECISION",
    "first_step_s": "DOUBLE PRECISION",
    "weight": "DOUBLE PRECISION",
    "score": "DOUBLE PRECISION",
    "validity": "TEXT",
    "reasons": "TEXT",
    "planned": "INTEGER",
    "passed": "INTEGER",
    "failed": "INTEGER",
}
METRICS: Mapping[str, str] = {
    "run": "TEXT",
    "bench": "TEXT",
    "place_in_run": "INTEGER",
    "step": "TEXT",
    "metric": "TEXT",
    "value": "DOUBLE PRECISION",
    "units": "TEXT",
    "direction": "TEXT",
    "place": "TEXT",
    "repeat": "INTEGER",
    "qualifier": "TEXT",
    "params": "TEXT",
}
TABLES: Mapping[str, Mapping[str, str]] = {"runs": RUNS, "results": RESULTS, "metrics": METRICS}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """What a store holds of one run: the rows of each table by its name, in the order of their columns."""

    run: str
    digest: str
    tables: Mapping[str, tuple[Row, ...]]


def rows(summary: Summary, document: Mapping[str, Any], identity: str) -> RunRows:
    """Return the rows of a run; `identity` is its key, `told` its summary as JSON, which is kept whole."""
    text = json.dumps(document, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    listed = summary.system.get("nodes")
    nodes = [as_mapping(node) for node in listed] if isinstance(listed, list) else []
    devices = [
        as_mapping(device) for node in nodes for device in (node.get("devices") or ()) if isinstance(device, Mapping)
    ]
    run: Row = (
        identity,
        summary.run,
        summary.created or _created(summary.run),
        summary.verdict,
        summary.profile,
        summary.version,
        ", ".join(dict.fromkeys(str(node.get("hostname") or node.get("name") or "") for node in nodes)),
        ", ".join(dict.fromkeys(str(device.get("name") or "") for device in devices)),
        len(nodes),
        len(devices),
        summary.score.value,
        digest,
        text,
    )
    metrics = [row for bench in summary.benchmarks for row in _metrics(identity, bench)]
    results = tuple(_result(identity, bench) for bench in summary.benchmarks)
    return RunRows(run=identity, digest=digest, tables={"runs": (run,), "results": results, "metrics": tuple(metrics)})


def _created(name: str) -> str:
    """Return when a run was started, from the name of its directory; milabench 1.3 recorded it nowhere else."""
    stamp = _STAMP.search(name)
    return f"{stamp[1]}T{stamp[2]}:{stamp[3]}:{stamp[4]}" if stamp else ""


def _result(run: str, bench: BenchSummary) -> Row:
    low, high = bench.ci95 or (None, None)
    return (
        run,
        bench.bench,
        bench.outcome,
        bench.perf,
        bench.units,
        bench.direction,
        low,
        high,
        bench.instances,
        bench.replicates,
        bench.spread_within,
        bench.spread_devices,
        bench.spread_processes,
        bench.memory_peak_mib,
        bench.energy_j,
        bench.first_step_s,
        bench.weight,
        bench.score,
        bench.validity,
        ", ".join(bench.reasons),
        bench.counts.get("planned", 0),
        bench.counts.get("passed", 0),
        bench.counts.get("failed", 0),
    )


def _metrics(run: str, bench: BenchSummary) -> list[Row]:
    return [
        (
            run,
            bench.bench,
            position,
            str(metric.get("step", "")),
            str(metric.get("metric", "")),
            metric.get("value"),
            str(metric.get("units", "")),
            str(metric.get("direction", "")),
            str(metric.get("place") or ""),
            metric.get("repeat"),
            " ".join(str(metric[key]) for key in ("case", "part") if metric.get(key)),
            json.dumps(metric["params"], sort_keys=True) if metric.get("params") else "",
        )
        for position, metric in enumerate(bench.metrics)
    ]
