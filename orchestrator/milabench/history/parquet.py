"""Results as a Parquet file: a row for each metric of each step, with its run and benchmark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from milabench.errors import EnvironmentFailed, RecordError
from milabench.history.rows import METRICS, RESULTS, RUNS, RunRows

# Of the run and of the benchmark, what a metric's row repeats; the rest is in the row itself.
_OF_RUN = ("name", "created", "profile", "version", "host", "device")
_OF_BENCH = ("outcome", "perf", "ci95_low", "ci95_high", "validity", "reasons", "weight")
_OWN = tuple(name for name in METRICS if name != "place_in_run")


def write(path: Path, runs: Iterable[RunRows]) -> int:
    """Write the file and say how many rows it has.

    A benchmark without any metric has one row, so that a failure is not left out. Raises EnvironmentFailed without pyarrow,
    RecordError when the file cannot be written.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise EnvironmentFailed(
            "Parquet files need the package pyarrow; install it with `pip install 'milabench[parquet]'`"
        ) from None
    kinds = {"TEXT": pa.string(), "INTEGER": pa.int64(), "DOUBLE PRECISION": pa.float64()}
    types = {name: kinds[METRICS[name]] for name in _OWN}
    types |= {f"run_{name}": kinds[RUNS[name]] for name in _OF_RUN}
    types |= {f"bench_{name}": kinds[RESULTS[name]] for name in _OF_BENCH}
    columns: dict[str, list[object]] = {name: [] for name in types}
    for rows in runs:
        for row in _joined(rows):
            for name in types:
                columns[name].append(row.get(name))
    schema = pa.schema(list(types.items()))
    try:
        pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    return len(columns["run"])


def _joined(rows: RunRows) -> Iterable[dict[str, object]]:
    run = dict(zip(RUNS, rows.tables["runs"][0], strict=True))
    of_run = {f"run_{name}": run[name] for name in _OF_RUN}
    metrics: dict[str, list[dict[str, object]]] = {}
    for metric in rows.tables["metrics"]:
        row = dict(zip(METRICS, metric, strict=True))
        metrics.setdefault(str(row["bench"]), []).append(row)
    for result in rows.tables["results"]:
        bench = dict(zip(RESULTS, result, strict=True))
        of_bench = {f"bench_{name}": bench[name] for name in _OF_BENCH}
        none: list[dict[str, object]] = [{"run": bench["run"], "bench": bench["bench"]}]
        for metric_row in metrics.get(str(bench["bench"]), none):
            yield {**metric_row, **of_run, **of_bench}
