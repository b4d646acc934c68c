"""The results of many runs in a store: add, query, read back, and the history of a benchmark."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from milabench.analysis.summary_io import summary_from_json
from milabench.analysis.summary_model import Summary
from milabench.analysis.system_diff import arguments_in
from milabench.devices.regular_file import open_regular, read_regular
from milabench.errors import NothingSelected, RecordError, os_reason
from milabench.events.run_files import MANIFEST
from milabench.events.rundir import Run
from milabench.events.runs_folder import runs_before_latest
from milabench.events.stored_json import from_json_value
from milabench.events.values import as_mapping, mappings_in
from milabench.events.wire import parse_object
from milabench.history import STORE
from milabench.history.rows import Row, RunRows
from milabench.history.rows import rows as rows_of
from milabench.history.store import Store, open_store
from milabench.history.trend import HistoryRow, Trend, trends
from milabench.workflow.files import base_folder
from milabench.workflow.measured_runs import resolve_runs
from milabench.workflow.references import work_record
from milabench.workflow.summaries import relative_logs, summary_of

# The numbers of a benchmark that have a trend, and their columns; all others are in the table of metrics.
COLUMNS = {"rate": "perf", "memory_peak": "memory_peak_mib", "first_step": "first_step_s", "score": "score"}
_UNITS = {"memory_peak": "MiB", "first_step": "s"}


def store_location(base: Path | None, location: str | None) -> str:
    """Return the path or address of the store: the given location, else in the base."""
    return location or str(base_folder(base) / STORE)


def add_runs(location: str, base: Path | None, names: Sequence[str]) -> tuple[list[tuple[str, str]], int]:
    """Add runs: return each with `added`, `updated` or `known`, and how many runs the store has.

    Raises NothingSelected and RecordError.
    """
    runs = resolve_runs(base, names)
    with open_store(location, is_writing=True) as store:
        return [(run.name, store.add(run_rows(run))) for run in runs], store.count()


def query_store(location: str, sql: str) -> tuple[list[str], list[Row]]:
    """Return the columns and rows of a query. Raises RecordError."""
    with open_store(location, is_writing=False) as store:
        return store.query(sql)


def stored_summaries(base: Path | None, location: str | None, names: Sequence[str]) -> list[Summary]:
    """Return the stored summaries of runs of these names, the newest of each. Without names, of the newest run.

    Raises NothingSelected when there is none.
    """
    _, rows = query_store(
        store_location(base, location), "SELECT name, summary FROM runs ORDER BY created DESC, name DESC"
    )
    summaries = []
    for wanted in names or (None,):
        # `night` also means `night.2026-03-01_12-00-00`.
        named = [text for name, text in rows if wanted in (name, str(name).rpartition(".")[0])]
        if not named and (place := runs_before_latest(wanted or "latest")) is not None:
            named = [text for _, text in rows[place:]]
        text = next(iter(named), None)
        if text is None:
            known = ", ".join(str(name) for name, _ in rows[:3])
            newest = f". The newest are {known}" if known else ""
            raise NothingSelected(f"no run is called '{wanted}' in the results store{newest}")
        try:
            summaries.append(summary_from_json(parse_object(str(text).encode())))
        except (ValueError, RecordError) as error:
            raise RecordError(
                f"the results store: its entry of {wanted or rows[0][0]} {error}. Add the run again"
            ) from None
    return summaries


def benchmark_trends(location: str, bench: str, metric: str, *, last: int | None = None) -> list[Trend]:
    """Return a benchmark's runs in the order of time, and where their level changed, for each system.

    `last`: only the last runs of each. Raises NothingSelected when the store has none.
    """
    with open_store(location, is_writing=False) as store:
        rows = history_rows(store, bench, metric)
        if not rows:
            _, names = store.query("SELECT DISTINCT bench FROM results ORDER BY bench LIMIT 20")
            known = ", ".join(str(row[0]) for row in names) or "none"
            raise NothingSelected(f"no run of '{bench}' with a {metric} is in the store. It has {known}")
    return list(trends(bench, metric, rows, last=last))


def history_rows(store: Store, bench: str, metric: str) -> list[HistoryRow]:
    """Return a row for each run that has this number. Raises RecordError for a store that was altered."""
    columns, rows = store.query(
        f"SELECT runs.name AS run, runs.created AS created, runs.host AS host, runs.device AS device, "
        f"results.{COLUMNS[metric]} AS value, results.units AS units, results.direction AS direction, "
        f"results.ci95_low AS low, results.ci95_high AS high, results.validity AS validity, results.outcome AS outcome, "
        f"runs.summary AS summary "
        f"FROM results JOIN runs ON runs.run = results.run "
        f"WHERE results.bench = ? AND results.{COLUMNS[metric]} IS NOT NULL",
        (bench,),
    )
    own: dict[str, Any] = {}
    if metric != "rate":  # interval, units and direction in the table are those of the rate
        direction = "higher" if metric == "score" else "lower"
        own = {"low": None, "high": None, "units": _UNITS.get(metric, ""), "direction": direction}
    found = [{**dict(zip(columns, row, strict=True)), **own} for row in rows]
    for row in found:
        row["size"], row["asked"] = _work_of(str(row.pop("summary")), bench)
    try:
        # A database may hold any kind of value in any column.
        return from_json_value(list[HistoryRow], found)
    except ValueError as error:
        raise RecordError(f"the results store was altered: {error}. Add the runs again to a new store") from None


def _work_of(stored: str, bench: str) -> tuple[str, str]:
    """Return the size of a benchmark in a run, and its work, from the stored summary. Else empty."""
    try:
        summary = parse_object(stored.encode())
    except ValueError:
        return "", ""
    known = next((one for one in mappings_in(summary.get("benchmarks")) if one.get("bench") == bench), {})
    return str(known.get("size") or ""), arguments_in(as_mapping(summary.get("manifest")), bench)


def run_identity(run: Run) -> str:
    """Return the hash of the plan and its time, which stays when the run is moved or resumed.

    A run of milabench 1.3 has no plan: its name and the beginning of its records identify it. Raises RecordError.
    """
    digest = hashlib.sha256()
    try:
        if run.manifest:
            digest.update(read_regular(run.path / MANIFEST))
        else:
            for path in sorted(run.path.glob("*.data")):
                with open_regular(path) as file:
                    # Enough to tell two runs apart; a file of records may have gigabytes.
                    digest.update(path.name.encode() + file.read(65536))
    except OSError as error:
        raise RecordError(f"{error.filename}: cannot be read: {os_reason(error)}") from None
    return digest.hexdigest()[:32]


def run_rows(run: Run) -> RunRows:
    """Return the rows that a store or a table file holds of a run."""
    summary = structs.replace(summary_of(run), manifest=work_record(run))
    return rows_of(summary, relative_logs(summary.to_json(), str(run.path)), run_identity(run))
