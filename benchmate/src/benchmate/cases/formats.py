"""Results as text: the short table and CSV, our JSON, and the console, JSON and CSV of Google Benchmark."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TextIO

from benchmate.cases.options import TIME_UNITS
from benchmate.cases.results import Aggregate, CaseResult, group_by_case
from benchmate.records import encode

NOT_MEASURED = "NaN"
"""What a column of numbers holds where there is none; a number to every reader of CSV."""

_CSV_COLUMNS = (
    *("cuda_memory_usage", "name", "wall_time"),  # the three of the few-bit library, in its order
    *("repetition", "outcome", "why", "detail", "reasons", "iterations", "cpu_time"),
    *("items_per_second", "bytes_per_second", "label", "process_seconds"),
    *("memory_allocated_peak_setup", "memory_allocated_peak_run"),
    *("memory_reserved_peak_setup", "memory_reserved_peak_run", "device_memory_process"),
    *("host_memory_start", "host_memory_peak_setup", "host_memory_peak_run"),
)
_GOOGLE_COLUMNS = (
    *("name", "iterations", "real_time", "cpu_time", "time_unit", "bytes_per_second", "items_per_second"),
    *("label", "error_occurred", "error_message"),
)


class ResultFormat(Protocol):
    """Writes results as they come, or all at the end."""

    def begin(self, context: Mapping[str, Any], names: Sequence[str]) -> None:
        """What stands above the results, of which there will be those of these cases."""

    def add(self, result: CaseResult) -> None:
        """One more result."""

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        """All that there are, also when the program was interrupted."""


class TableFormat:
    """`Name Wall Time CUDA Memory`: nanoseconds of an iteration and bytes, a line for each process, separated by spaces."""

    def __init__(self, out: TextIO, *, aggregates_only: bool) -> None:
        self._out, self._aggregates_only = out, aggregates_only

    def begin(self, context: Mapping[str, Any], names: Sequence[str]) -> None:
        """See Format."""
        self._line("Name", "Wall Time", "CUDA Memory")

    def add(self, result: CaseResult) -> None:
        """See Format."""
        if not self._aggregates_only:
            status = () if result.outcome == "passed" and not result.reasons else (status_line(result),)
            self._line(result.case.name, _whole(result.real_ns), _memory(result), *status)

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        """See Format."""
        for one in aggregates:
            self._line(f"{one.case.name}_{one.name}", f"{one.real_ns:.6g}", NOT_MEASURED)
        if self._aggregates_only:
            for result in _unaggregated(results, aggregates):
                self._line(result.case.name, _whole(result.real_ns), _memory(result), status_line(result))

    def _line(self, *words: str) -> None:
        print(*words, file=self._out, flush=True)


class CsvFormat:
    """The columns of the few-bit library, then ours; a line for each process, at once on disk."""

    def __init__(self, out: TextIO, *, aggregates_only: bool) -> None:
        self._out, self._aggregates_only = out, aggregates_only
        self._writer = csv.DictWriter(out, _CSV_COLUMNS, restval="", lineterminator="\n")

    def begin(self, context: Mapping[str, Any], names: Sequence[str]) -> None:
        """See Format."""
        self._writer.writeheader()
        self._out.flush()

    def add(self, result: CaseResult) -> None:
        """See Format."""
        if not self._aggregates_only:
            self._row(_csv_row(result))

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        """See Format."""
        for one in aggregates:
            times = {"wall_time": f"{one.real_ns:.6g}", "cpu_time": f"{one.process_ns:.6g}"}
            told = {"cuda_memory_usage": NOT_MEASURED, "repetition": one.name, "iterations": one.count, **one.rates}
            self._row({"name": one.case.name, **times, **told})
        if self._aggregates_only:
            for result in _unaggregated(results, aggregates):
                self._row(_csv_row(result))

    def _row(self, row: Mapping[str, Any]) -> None:
        self._writer.writerow(row)
        self._out.flush()


class JsonFormat:
    """Everything that is known, with its units; `{"schema": 1, "context", "cases": [{"name", "params", "results"}]}`."""

    def __init__(self, out: TextIO, *, aggregates_only: bool) -> None:
        self._out, self._aggregates_only = out, aggregates_only
        self._context: Mapping[str, Any] = {}

    def begin(self, context: Mapping[str, Any], names: Sequence[str]) -> None:
        """See Format."""
        self._context = context

    def add(self, result: CaseResult) -> None:
        """See Format."""

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        """See Format."""
        cases = []
        for case, members in group_by_case(results):
            own = [one for one in aggregates if one.case.name == case.name]
            cases.append(
                {
                    "name": case.name,
                    "params": dict(case.params),
                    "results": [] if self._aggregates_only and own else [_json_row(one) for one in members],
                    "aggregates": {one.name: {"wall_time": one.real_ns / (1 if one.is_ratio else 1e9)} for one in own},
                }
            )
        _write_json(self._out, {"schema": 1, "context": self._context, "cases": cases})


class GoogleJsonFormat:
    """The schema of Google Benchmark, version 1, in strict JSON: what is no number is left out."""

    def __init__(self, out: TextIO, *, unit: str, aggregates_only: bool) -> None:
        self._out, self._unit, self._aggregates_only = out, unit, aggregates_only
        self._context: Mapping[str, Any] = {}

    def begin(self, context: Mapping[str, Any], names: Sequence[str]) -> None:
        """See Format."""
        self._context = context

    def add(self, result: CaseResult) -> None:
        """See Format."""

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        """See Format."""
        rows = google_rows(results, aggregates, self._unit, aggregates_only=self._aggregates_only)
        _write_json(self._out, {"context": self._context, "benchmarks": rows})


class GoogleCsvFormat:
    """The columns of Google Benchmark's CSV, the counters of all cases behind them; at the end, when all are known."""

    def __init__(self, out: TextIO, *, unit: str, aggregates_only: bool) -> None:
        self._out, self._unit, self._aggregates_only = out, unit, aggregates_only

    def begin(self, context: Mapping[str, Any], names: Sequence[str]) -> None:
        """See Format."""

    def add(self, result: CaseResult) -> None:
        """See Format."""

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        """See Format."""
        counters = sorted({name for one in results for name in one.counters})
        self._out.write(",".join([*_GOOGLE_COLUMNS, *(f'"{name}"' for name in counters)]) + "\n")
        for row in google_rows(results, aggregates, self._unit, aggregates_only=self._aggregates_only):
            error = row.get("error_message", row.get("skip_message"))
            message = {} if error is None else {"error_occurred": "true", "error_message": error}
            writer = csv.writer(self._out, lineterminator="\n")
            writer.writerow([{**row, **message}.get(column, "") for column in (*_GOOGLE_COLUMNS, *counters)])
        self._out.flush()


class ConsoleFormat:
    """The table that Google Benchmark shows."""

    def __init__(self, out: TextIO, *, unit: str, tabular: bool, aggregates_only: bool) -> None:
        self._out, self._unit, self._tabular, self._aggregates_only = out, unit, tabular, aggregates_only
        self._width = 0
        self._counters: tuple[str, ...] | None = None

    def begin(self, context: Mapping[str, Any], names: Sequence[str]) -> None:
        """See Format."""
        self._width = max([len("Benchmark"), *(len(name) + len("_median") for name in names)])
        where = f"Run on {context['num_cpus']} processors of {context['host_name']}"
        self._out.write(f"{context['date']}\nRunning {context['executable']}\n{where}\n")

    def add(self, result: CaseResult) -> None:
        """See Format."""
        if self._aggregates_only:
            return
        if result.is_measured:
            self._line(
                result.case.name, _google_run(result, self._unit), {**result.rates, **result.counters}, result.label
            )
        else:
            self._heading({})
            word = "SKIPPED" if result.outcome == "skipped" else "ERROR"
            self._write(f"{result.case.name:<{self._width}} {word}: '{_message(result)}'")

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        """See Format."""
        for one in aggregates:
            self._line(
                f"{one.case.name}_{one.name}", _google_aggregate(one, self._unit), {**one.rates, **one.counters}, ""
            )
        if self._aggregates_only:
            self._aggregates_only = False
            for result in _unaggregated(results, aggregates):
                self.add(result)

    def _line(self, name: str, row: Mapping[str, Any], counters: Mapping[str, float], label: str) -> None:
        self._heading(counters)
        if row.get("aggregate_unit") == "percentage":
            times = "".join(f"{100 * row[key]:>13.2f} %" for key in ("real_time", "cpu_time"))
        else:
            times = "".join(f"{_figure(row[key]):>12} {self._unit:<2}" for key in ("real_time", "cpu_time"))
        if self._tabular:
            told = "".join(f" {_short(counters[key]) if key in counters else '':>10}" for key in self._counters or ())
        else:
            told = "".join(f" {key}={_short(value)}" for key, value in counters.items())
        self._write(f"{name:<{self._width}}{times} {row['iterations']:>12}{told}{' ' if label else ''}{label}".rstrip())

    def _heading(self, counters: Mapping[str, float]) -> None:
        """Above the first line, and again where tabular counters change."""
        columns = tuple(counters) if self._tabular else ()
        if self._counters is not None and (columns == self._counters or not columns):
            return
        self._counters = columns
        more = "".join(f" {name:>10}" for name in columns) if self._tabular else ""
        line = f"{'Benchmark':<{self._width}}{'Time':>15}{'CPU':>15} {'Iterations':>12}{more}"
        rule = "-" * len(line)
        self._write(f"{rule}\n{line}\n{rule}")

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def google_rows(
    results: Sequence[CaseResult], aggregates: Sequence[Aggregate], unit: str, *, aggregates_only: bool
) -> list[dict[str, Any]]:
    """The entries of `benchmarks`: the processes of each case, then its aggregates; what failed is never left out."""
    rows = []
    for case, members in group_by_case(results):
        own = [one for one in aggregates if one.case.name == case.name]
        for one in members:
            if aggregates_only and own and one.is_measured:
                continue
            row = _identity(one, len(members))
            rows.append(row | {"repetition_index": one.repetition, "threads": 1} | _google_run(one, unit))
        for statistic in own:
            row = _identity(statistic, len(members))
            rows.append(row | {"threads": 1} | _google_aggregate(statistic, unit))
    return rows


def _identity(one: CaseResult | Aggregate, repetitions: int) -> dict[str, Any]:
    is_aggregate = isinstance(one, Aggregate)
    return {
        "name": f"{one.case.name}_{one.name}" if isinstance(one, Aggregate) else one.case.name,
        "family_index": one.case.family,
        "per_family_instance_index": one.case.instance,
        "run_name": one.case.name,
        "run_type": "aggregate" if is_aggregate else "iteration",
        "repetitions": repetitions,
    }


def _google_run(one: CaseResult, unit: str) -> dict[str, Any]:
    """A process's own keys. A failed one has no times: what compares then leaves it out, and does not see a zero."""
    row: dict[str, Any] = {}
    if one.outcome == "skipped":
        row |= {"skipped": True, "skip_message": _message(one)}
    elif not one.is_measured:
        row |= {"error_occurred": True, "error_message": _message(one)}
    row["iterations"] = one.iterations
    if one.is_measured:
        scale = TIME_UNITS[unit]
        row |= {"real_time": one.real_ns / scale, "cpu_time": one.process_ns / scale, "time_unit": unit}
    row |= {**one.rates, **one.counters}
    if one.label:
        row["label"] = one.label
    if "host_memory_peak_run" in one.memory:
        row["max_bytes_used"] = one.memory["host_memory_peak_run"]
    return row


def _google_aggregate(one: Aggregate, unit: str) -> dict[str, Any]:
    scale = 1.0 if one.is_ratio else TIME_UNITS[unit]
    return {
        "aggregate_name": one.name,
        "aggregate_unit": "percentage" if one.is_ratio else "time",
        "iterations": one.count,
        "real_time": one.real_ns / scale,
        "cpu_time": one.process_ns / scale,
        "time_unit": unit,
        **one.rates,
        **one.counters,
    }


def open_format(kind: str, out: TextIO, *, unit: str, tabular: bool, aggregates_only: bool) -> ResultFormat:
    """The writer of a format: stdout, csv, json, google-console, google-json or google-csv."""
    makers: dict[str, Callable[[], ResultFormat]] = {
        "stdout": lambda: TableFormat(out, aggregates_only=aggregates_only),
        "csv": lambda: CsvFormat(out, aggregates_only=aggregates_only),
        "json": lambda: JsonFormat(out, aggregates_only=aggregates_only),
        "google-console": lambda: ConsoleFormat(out, unit=unit, tabular=tabular, aggregates_only=aggregates_only),
        "google-json": lambda: GoogleJsonFormat(out, unit=unit, aggregates_only=aggregates_only),
        "google-csv": lambda: GoogleCsvFormat(out, unit=unit, aggregates_only=aggregates_only),
    }
    return makers[kind]()


def status_line(result: CaseResult) -> str:
    """How a process ended, in one phrase."""
    reasons = f" ({', '.join(result.reasons)})" if result.reasons else ""
    why = f" ({result.why})" if result.why else ""
    return f"{result.outcome}{why}: {_message(result)}{reasons}"


def _message(result: CaseResult) -> str:
    return " ".join(result.detail.split()) or result.why or result.outcome


def _unaggregated(results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> list[CaseResult]:
    """Those that no aggregate stands for: they are told even where only aggregates are wanted."""
    names = {one.case.name for one in aggregates}
    return [one for one in results if not one.is_measured or one.case.name not in names]


def _csv_row(one: CaseResult) -> dict[str, Any]:
    return {
        "cuda_memory_usage": _memory(one),
        "name": one.case.name,
        "wall_time": _whole(one.real_ns),
        "repetition": one.repetition,
        "outcome": one.outcome,
        "why": one.why,
        "detail": " ".join(one.detail.split()),
        "reasons": " ".join(one.reasons),
        "iterations": one.iterations,
        "cpu_time": _whole(one.process_ns),
        "label": one.label,
        "process_seconds": f"{one.seconds:.6f}",
        **one.rates,
        **{key: value for key, value in one.memory.items() if key in _CSV_COLUMNS and key != "cuda_memory_usage"},
    }


def _json_row(one: CaseResult) -> dict[str, Any]:
    """Seconds and bytes; `wall_time` and `cpu_time` of one iteration."""
    row: dict[str, Any] = {"repetition": one.repetition, "outcome": one.outcome}
    if one.is_measured:
        row |= {"iterations": one.iterations, "wall_time": one.real_ns / 1e9, "cpu_time": one.process_ns / 1e9}
    optional: dict[str, Any] = {
        "why": one.why,
        "detail": one.detail,
        "reasons": list(one.reasons),
        **one.rates,
        "counters": dict(one.counters),
        "label": one.label,
        "memory": dict(one.memory),
        "notes": list(one.notes),
        "tail": "" if one.outcome == "passed" else one.tail,
    }
    return row | {key: value for key, value in optional.items() if value} | {"process_seconds": one.seconds}


def _whole(number: float) -> str:
    return NOT_MEASURED if math.isnan(number) else str(round(number))


def _memory(one: CaseResult) -> str:
    return str(one.memory.get("cuda_memory_usage", NOT_MEASURED))


def _figure(time: float) -> str:
    """A time of the console: three figures or all whole ones."""
    return f"{time:.0f}" if time >= 100 else f"{time:.3g}"


def _short(number: float) -> str:
    """Five figures with a letter for thousands, as the console has it."""
    for letter, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= scale:
            return f"{number / scale:.5g}{letter}"
    return f"{number:.5g}"


def _write_json(out: TextIO, value: Mapping[str, Any]) -> None:
    # encode() makes it strict; indented, because people look into these files.
    json.dump(json.loads(encode(value)), out, indent=2)
    out.write("\n")
    out.flush()
