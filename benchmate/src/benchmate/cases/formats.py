"""Results as text: the short table and CSV, our JSON, and the console, JSON and CSV of Google Benchmark."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from benchmate.cases.options import TIME_UNITS
from benchmate.cases.results import Aggregate, CaseResult, group_by_case
from benchmate.records import encode

Row = dict[str, object]
NOT_MEASURED = "NaN"
"""The value of a column of numbers where there is none: a number to every reader of CSV."""

_CSV_COLUMNS = (
    *("cuda_memory_usage", "name", "wall_time"),  # the three of the few-bit library, in its order
    *("repetition", "outcome", "why", "detail", "reasons", "iterations", "cpu_time"),
    *("items_per_second", "bytes_per_second", "label", "process_seconds"),
    *("memory_allocated_peak_setup", "memory_allocated_peak_run"),
    *("memory_reserved_peak_setup", "memory_reserved_peak_run", "device_memory_process"),
    *("host_memory_start", "host_memory_peak_setup", "host_memory_peak_run"),
)
_OPTIONAL = ("why", "detail", "reasons", "counters", "label", "memory", "notes")
"""Fields of a result that are left out of JSON where they are empty."""
_GOOGLE_COLUMNS = (
    *("name", "iterations", "real_time", "cpu_time", "time_unit", "bytes_per_second", "items_per_second"),
    *("label", "error_occurred", "error_message"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How results are written: the unit of time, counters in columns of their own, aggregates without single processes."""

    unit: str = "ns"
    tabular: bool = False
    aggregates_only: bool = False


class ResultFormat:
    """Writes each result as it comes and the aggregates at the end. A format that is a single document overrides `end` alone.

    The caller flushes `out`.
    """

    def __init__(self, out: TextIO, style: Style) -> None:
        self.out, self.style = out, style
        self.context: Mapping[str, object] = {}

    def begin(self, context: Mapping[str, object], names: Sequence[str]) -> None:
        """Write the head above the results, which will come from the cases of these names."""
        self.context = context

    def write_result(self, result: CaseResult) -> None:
        """Write the result of a process."""

    def write_aggregate(self, aggregate: Aggregate) -> None:
        """Write a statistic of a case."""

    def add(self, result: CaseResult) -> None:
        """Take another result."""
        if not self.style.aggregates_only:
            self.write_result(result)

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        """Take all results that there are, also when the program was interrupted."""
        for aggregate in aggregates:
            self.write_aggregate(aggregate)
        if self.style.aggregates_only:
            # A result that no aggregate stands for is shown even where only aggregates are wanted.
            names = {aggregate.case.name for aggregate in aggregates}
            for result in results:
                if not result.is_measured or result.case.name not in names:
                    self.write_result(result)


class TableFormat(ResultFormat):
    """`Name Wall Time CUDA Memory`: nanoseconds of an iteration and bytes, a line for each process, separated by spaces."""

    def begin(self, context: Mapping[str, object], names: Sequence[str]) -> None:
        print("Name", "Wall Time", "CUDA Memory", file=self.out)

    def write_result(self, result: CaseResult) -> None:
        is_plain = result.outcome == "passed" and not result.reasons
        status = () if is_plain else (status_line(result),)
        print(result.case.name, _whole(result.real_ns), _memory(result), *status, file=self.out)

    def write_aggregate(self, aggregate: Aggregate) -> None:
        print(f"{aggregate.case.name}_{aggregate.name}", f"{aggregate.real_ns:.6g}", NOT_MEASURED, file=self.out)


class CsvFormat(ResultFormat):
    """The columns of the few-bit library, then ours. A line for each process."""

    def __init__(self, out: TextIO, style: Style) -> None:
        super().__init__(out, style)
        # The csv module ends lines with CR LF by default, which cut, awk and diff show as part of the last cell.
        self._writer = csv.DictWriter(out, _CSV_COLUMNS, restval="", lineterminator="\n")

    def begin(self, context: Mapping[str, object], names: Sequence[str]) -> None:
        self._writer.writeheader()

    def write_result(self, result: CaseResult) -> None:
        row = {
            **{name: size for name, size in result.memory.items() if name in _CSV_COLUMNS},
            "cuda_memory_usage": _memory(result),
            "name": result.case.name,
            "wall_time": _whole(result.real_ns),
            "repetition": result.repetition,
            "outcome": result.outcome,
            "why": result.why,
            "detail": " ".join(result.detail.split()),
            "reasons": " ".join(result.reasons),
            "iterations": result.iterations,
            "cpu_time": _whole(result.process_ns),
            "label": result.label,
            "process_seconds": f"{result.seconds:.6f}",
            **result.rates,
        }
        self._writer.writerow(row)

    def write_aggregate(self, aggregate: Aggregate) -> None:
        row = {
            "cuda_memory_usage": NOT_MEASURED,
            "name": aggregate.case.name,
            "wall_time": f"{aggregate.real_ns:.6g}",
            "cpu_time": f"{aggregate.process_ns:.6g}",
            "repetition": aggregate.name,
            "iterations": aggregate.count,
            **aggregate.rates,
        }
        self._writer.writerow(row)


class JsonFormat(ResultFormat):
    """Everything that is known, with its units. `{"schema": 1, "context", "cases": [{"name", "params", "results"}]}`."""

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        cases = []
        for case, of_case in group_by_case(results):
            own = [aggregate for aggregate in aggregates if aggregate.case.name == case.name]
            rows = [] if self.style.aggregates_only and own else [_json_row(result) for result in of_case]
            statistics = {
                aggregate.name: {"wall_time": aggregate.real_ns / (1 if aggregate.is_ratio else 1e9)}
                for aggregate in own
            }
            row = {"name": case.name, "params": dict(case.params), "results": rows, "aggregates": statistics}
            cases.append(row)
        _write_json(self.out, {"schema": 1, "context": self.context, "cases": cases})


class GoogleJsonFormat(ResultFormat):
    """The schema of Google Benchmark, version 1, in strict JSON: NaN and infinities become null."""

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        rows = google_rows(results, aggregates, self.style)
        _write_json(self.out, {"context": self.context, "benchmarks": rows})


class GoogleCsvFormat(ResultFormat):
    """The columns of Google Benchmark's CSV, the counters of all cases behind them. At the end, when all are known."""

    def end(self, results: Sequence[CaseResult], aggregates: Sequence[Aggregate]) -> None:
        counters = sorted({name for result in results for name in result.counters})
        # By hand: Google Benchmark quotes the names of counters, and only these.
        self.out.write(",".join([*_GOOGLE_COLUMNS, *(f'"{name}"' for name in counters)]) + "\n")
        writer = csv.writer(self.out, lineterminator="\n")
        for row in google_rows(results, aggregates, self.style):
            error = row.get("error_message", row.get("skip_message"))
            if error is not None:
                row |= {"error_occurred": "true", "error_message": error}
            writer.writerow([row.get(column, "") for column in (*_GOOGLE_COLUMNS, *counters)])


class ConsoleFormat(ResultFormat):
    """The table that Google Benchmark shows."""

    def __init__(self, out: TextIO, style: Style) -> None:
        super().__init__(out, style)
        self._width = 0
        self._counters: tuple[str, ...] | None = None

    def begin(self, context: Mapping[str, object], names: Sequence[str]) -> None:
        self._width = max([len("Benchmark"), *(len(name) + len("_median") for name in names)])
        host = f"Run on {context['num_cpus']} processors of {context['host_name']}"
        self.out.write(f"{context['date']}\nRunning {context['executable']}\n{host}\n")

    def write_result(self, result: CaseResult) -> None:
        if result.is_measured:
            times = self._times(result.real_ns, result.process_ns)
            counters = {**result.rates, **result.counters}
            self._line(result.case.name, times, result.iterations, counters, result.label)
        else:
            self._heading({})
            word = "SKIPPED" if result.outcome == "skipped" else "ERROR"
            print(f"{result.case.name:<{self._width}} {word}: '{_message(result)}'", file=self.out)

    def write_aggregate(self, aggregate: Aggregate) -> None:
        if aggregate.is_ratio:
            times = "".join(f"{100 * share:>13.2f} %" for share in (aggregate.real_ns, aggregate.process_ns))
        else:
            times = self._times(aggregate.real_ns, aggregate.process_ns)
        name = f"{aggregate.case.name}_{aggregate.name}"
        self._line(name, times, aggregate.count, {**aggregate.rates, **aggregate.counters}, "")

    def _times(self, *times_ns: float) -> str:
        unit = self.style.unit
        return "".join(f"{_figure(time_ns / TIME_UNITS[unit]):>12} {unit:<2}" for time_ns in times_ns)

    def _line(self, name: str, times: str, iterations: int, counters: Mapping[str, float], label: str) -> None:
        self._heading(counters)
        if self.style.tabular:
            cells = [_short(counters[key]) if key in counters else "" for key in self._counters or ()]
            columns = "".join(f" {cell:>10}" for cell in cells)
        else:
            columns = "".join(f" {key}={_short(value)}" for key, value in counters.items())
        line = f"{name:<{self._width}}{times} {iterations:>12}{columns}{' ' if label else ''}{label}"
        print(line.rstrip(), file=self.out)

    def _heading(self, counters: Mapping[str, float]) -> None:
        """Write the heading above the first line, and again where tabular counters change."""
        columns = tuple(counters) if self.style.tabular else ()
        if self._counters is not None and (columns == self._counters or not columns):
            return
        self._counters = columns
        names = "".join(f" {name:>10}" for name in columns)
        line = f"{'Benchmark':<{self._width}}{'Time':>15}{'CPU':>15} {'Iterations':>12}{names}"
        rule = "-" * len(line)
        print(rule, line, rule, sep="\n", file=self.out)


FORMATS: Mapping[str, type[ResultFormat]] = {
    "stdout": TableFormat,
    "csv": CsvFormat,
    "json": JsonFormat,
    "google-console": ConsoleFormat,
    "google-json": GoogleJsonFormat,
    "google-csv": GoogleCsvFormat,
}


def google_rows(results: Sequence[CaseResult], aggregates: Sequence[Aggregate], style: Style) -> list[Row]:
    """Return the entries of `benchmarks`: the processes of each case, then its aggregates. Failures are never left out."""
    rows = []
    for case, of_case in group_by_case(results):
        own = [aggregate for aggregate in aggregates if aggregate.case.name == case.name]
        shared: Row = {
            "family_index": case.family,
            "per_family_instance_index": case.instance,
            "run_name": case.name,
            "repetitions": len(of_case),
            "threads": 1,
        }
        for result in of_case:
            if not (style.aggregates_only and own and result.is_measured):
                rows.append({"name": case.name, "run_type": "iteration", **shared, **_google_run(result, style.unit)})
        for aggregate in own:
            row = {"name": f"{case.name}_{aggregate.name}", "run_type": "aggregate"}
            rows.append({**row, **shared, **_google_aggregate(aggregate, style.unit)})
    return rows


def _google_run(result: CaseResult, unit: str) -> Row:
    """Return a process's own keys. A failed one has no times: comparisons then leave it out, instead of reading a zero."""
    row: Row = {"repetition_index": result.repetition, "iterations": result.iterations}
    if result.outcome == "skipped":
        row |= {"skipped": True, "skip_message": _message(result)}
    elif not result.is_measured:
        row |= {"error_occurred": True, "error_message": _message(result)}
    if result.is_measured:
        scale = TIME_UNITS[unit]
        row |= {"real_time": result.real_ns / scale, "cpu_time": result.process_ns / scale, "time_unit": unit}
    row |= {**result.rates, **result.counters}
    if result.label:
        row["label"] = result.label
    if "host_memory_peak_run" in result.memory:
        row["max_bytes_used"] = result.memory["host_memory_peak_run"]
    return row


def _google_aggregate(aggregate: Aggregate, unit: str) -> Row:
    scale = 1.0 if aggregate.is_ratio else TIME_UNITS[unit]
    return {
        "aggregate_name": aggregate.name,
        "aggregate_unit": "percentage" if aggregate.is_ratio else "time",
        "iterations": aggregate.count,
        "real_time": aggregate.real_ns / scale,
        "cpu_time": aggregate.process_ns / scale,
        "time_unit": unit,
        **aggregate.rates,
        **aggregate.counters,
    }


def status_line(result: CaseResult) -> str:
    """Return how a process ended, in a phrase."""
    reasons = f" ({', '.join(result.reasons)})" if result.reasons else ""
    why = f" ({result.why})" if result.why else ""
    return f"{result.outcome}{why}: {_message(result)}{reasons}"


def _message(result: CaseResult) -> str:
    return " ".join(result.detail.split()) or result.why or result.outcome


def _json_row(result: CaseResult) -> Row:
    """Return seconds and bytes. `wall_time` and `cpu_time` of an iteration."""
    row: Row = {"repetition": result.repetition, "outcome": result.outcome}
    if result.is_measured:
        times = {"wall_time": result.real_ns / 1e9, "cpu_time": result.process_ns / 1e9}
        row |= {"iterations": result.iterations, **times}
    optional: Row = {name: getattr(result, name) for name in _OPTIONAL} | result.rates
    if result.outcome != "passed":
        optional["tail"] = result.tail
    return row | {key: value for key, value in optional.items() if value} | {"process_seconds": result.seconds}


def _whole(number: float) -> str:
    return NOT_MEASURED if math.isnan(number) else str(round(number))


def _memory(result: CaseResult) -> str:
    return str(result.memory.get("cuda_memory_usage", NOT_MEASURED))


def _figure(time: float) -> str:
    """Return a time for the console: three significant figures, or all digits of a large number."""
    return f"{time:.0f}" if time >= 100 else f"{time:.3g}"


def _short(number: float) -> str:
    """Return five significant figures with a letter for thousands, as the console of Google Benchmark does."""
    for letter, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= scale:
            return f"{number / scale:.5g}{letter}"
    return f"{number:.5g}"


def _write_json(out: TextIO, value: Mapping[str, object]) -> None:
    # encode() makes it strict; indented, because people look into these files.
    json.dump(json.loads(encode(value)), out, indent=2)
    out.write("\n")
