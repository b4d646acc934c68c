"""A run's summary -> its rows in a store or a Parquet file. The columns are in results-store.md."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.errors import UsageError
from milabench.events.atomic_write import draft_of, require_no_record
from milabench.shown import grouped, visible
from milabench.workflow.files import writing

Row = tuple[Any, ...]

_STAMP = re.compile(r"\.(\d{4}-\d\d-\d\d)_(\d\d)[-:_](\d\d)[-:_](\d\d)")

_COUNTS = ("nodes", "devices", "instances", "replicates", "planned", "passed", "failed", "place_in_run", "repeat")
_MEASURED = (
    *("score", "perf", "ci95_low", "ci95_high", "spread_within", "spread_devices", "spread_processes"),
    *("memory_peak_mib", "energy_j", "first_step_s", "weight", "value"),
)


def _columns(*names: str) -> Mapping[str, str]:
    """Return the SQL types of columns, in order: a name has the same type in every table."""
    kinds = {**dict.fromkeys(_COUNTS, "INTEGER"), **dict.fromkeys(_MEASURED, "DOUBLE PRECISION")}
    return {name: kinds.get(name, "TEXT") for name in names}


# Stores of this version have these columns: a change needs another store.SCHEMA.
RUNS = _columns(
    *("run", "name", "created", "verdict", "profile", "version", "host", "device", "nodes", "devices"),
    *("score", "digest", "summary"),
)
RESULTS = _columns(
    *("run", "bench", "outcome", "perf", "units", "direction", "ci95_low", "ci95_high", "instances", "replicates"),
    *("spread_within", "spread_devices", "spread_processes", "memory_peak_mib", "energy_j", "first_step_s"),
    *("weight", "score", "validity", "reasons", "planned", "passed", "failed"),
)
METRICS = _columns(
    *("run", "bench", "place_in_run", "step", "metric", "value", "units", "direction", "place", "repeat"),
    *("qualifier", "params"),
)
TABLES: Mapping[str, Mapping[str, str]] = {"runs": RUNS, "results": RESULTS, "metrics": METRICS}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """The stored form of a run: the rows of each table by its name, in the order of their columns."""

    run: str
    digest: str
    tables: Mapping[str, tuple[Row, ...]]


def rows(summary: Summary, document: Mapping[str, object], identity: str) -> RunRows:
    """Return the rows of a run. `identity` is its key, `document` its summary as JSON, which is kept whole."""
    text = json.dumps(document, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    nodes, devices = summary.nodes, summary.devices
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
    tables = {"runs": (run,), "results": results, "metrics": tuple(metrics)}
    # What a database or a Parquet file could not hold as text is a sign in it.
    return RunRows(
        run=identity,
        digest=digest,
        tables={
            name: tuple(tuple(visible(value) if isinstance(value, str) else value for value in row) for row in rows)
            for name, rows in tables.items()
        },
    )


def _created(name: str) -> str:
    """Return when a run was started, from the name of its directory. Milabench 1.3 recorded it nowhere else."""
    stamp = _STAMP.search(name)
    return f"{stamp[1]}T{stamp[2]}:{stamp[3]}:{stamp[4]}" if stamp else ""


def _result(run: str, bench: BenchSummary) -> Row:
    low, high = bench.interval or (None, None)
    own = {"run": run, "ci95_low": low, "ci95_high": high, "reasons": ", ".join(bench.doubts)}
    own |= {outcome: bench.counts.get(outcome, 0) for outcome in ("planned", "passed", "failed")}
    # All other columns are called as the fields of a summary.
    return tuple(own[name] if name in own else getattr(bench, name) for name in RESULTS)


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


# Of the run and of the benchmark, what a metric's row repeats; the rest is in the row itself.
_OF_RUN = ("name", "created", "profile", "version", "host", "device")
_OF_BENCH = ("outcome", "perf", "ci95_low", "ci95_high", "validity", "reasons", "weight")
_OWN = tuple(name for name in METRICS if name != "place_in_run")


def write(path: Path, runs: Iterable[RunRows]) -> int:
    """Write the file and say how many rows it has.

    A benchmark without any metric has a row, so that a failure is not left out. Raises UsageError without pyarrow,
    RecordError when the file cannot be written.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(
            "Parquet files need the package pyarrow. Install it with `pip install 'milabench[parquet]'`"
        ) from None
    kinds = {"TEXT": pa.string(), "INTEGER": pa.int64(), "DOUBLE PRECISION": pa.float64()}
    types = {name: kinds[METRICS[name]] for name in _OWN}
    types |= {f"run_{name}": kinds[RUNS[name]] for name in _OF_RUN}
    types |= {f"bench_{name}": kinds[RESULTS[name]] for name in _OF_BENCH}
    table = pa.Table.from_pylist([row for rows in runs for row in _joined(rows)], schema=pa.schema(list(types.items())))
    with writing(path):
        require_no_record(path)
        with draft_of(path.resolve()) as file:  # opened here: pyarrow takes no path that is not UTF-8
            pq.write_table(table, file, compression="zstd")
    return int(table.num_rows)


def _joined(rows: RunRows) -> Iterable[dict[str, object]]:
    run = dict(zip(RUNS, rows.tables["runs"][0], strict=True))
    of_run = {f"run_{name}": run[name] for name in _OF_RUN}
    measured = (dict(zip(METRICS, metric, strict=True)) for metric in rows.tables["metrics"])
    metrics = grouped((str(row["bench"]), row) for row in measured)
    for result in rows.tables["results"]:
        bench = dict(zip(RESULTS, result, strict=True))
        of_bench = {f"bench_{name}": bench[name] for name in _OF_BENCH}
        none: list[dict[str, object]] = [{"run": bench["run"], "bench": bench["bench"]}]
        for metric_row in metrics.get(str(bench["bench"]), none):
            yield {**metric_row, **of_run, **of_bench}
