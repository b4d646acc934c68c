"""The columns of the report on a run, each declared once: in text and Markdown, on the page, in CSV and in workbooks.

To add a column, add a `Column` to COLUMNS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

from milabench.analysis.json_codec import picked
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.report.document import Table
from milabench.report.labels import format_number, percent_cell
from milabench.report.model import (
    half_width,
    in_milliseconds,
    not_passed,
    ordered,
    reference_ratio_text,
    validity_text,
)

CsvValue = str | float | None
_LAST = 100


@dataclass(frozen=True, slots=True)
class CsvField:
    """A field of CSV, in full precision: by default the benchmark's value of that name.

    Fields are in the order of their `place`. Fields without a place come last.
    """

    name: str
    place: int = _LAST
    value: Callable[[BenchSummary], CsvValue] | None = None

    def of(self, bench: BenchSummary) -> CsvValue:
        """Return the value of a benchmark."""
        value: CsvValue = getattr(bench, self.name) if self.value is None else self.value(bench)
        return value


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table with a row for each benchmark: its heading, and the cell (empty where there is nothing to show).

    `spare` is its turn among the columns that a narrow terminal does without, 1 for the first to go. 0: it always stays.
    An optional column is only shown where some benchmark has something in it. `page` is its place among the columns that come
    first on a page, which sorts and filters. The others follow in their order. `csv` are its fields there.
    """

    heading: str
    cell: Callable[[BenchSummary], str]
    _: KW_ONLY
    is_text: bool = False
    is_optional: bool = False
    is_on_page_only: bool = False
    spare: int = 0
    page: int = _LAST
    csv: tuple[CsvField, ...] = ()


def _count(outcome: str, place: int) -> CsvField:
    return CsvField(outcome, place, lambda bench: bench.counts.get(outcome, 0))


def _largest(bench: BenchSummary) -> str | None:
    """Return the largest part of the uncertainty."""
    return bench.uncertainty.components[0].name if bench.uncertainty and bench.uncertainty.components else None


def _expanded(bench: BenchSummary) -> float | None:
    return None if bench.uncertainty is None else bench.uncertainty.expanded


def interval_cell(bench: BenchSummary) -> str:
    """Return `12.1 … 13.5`, the interval of a number. Empty where there is none."""
    return "" if bench.interval is None else " … ".join(map(format_number, bench.interval))


def _of_all_instances(bench: BenchSummary) -> str:
    """Return the total rate of instances that ran at the same time, whose rates can be added up."""
    return format_number(bench.score) if bench.instances > 1 and bench.direction == "higher" else ""


def _failures(bench: BenchSummary) -> str:
    return "; ".join(f"{failure.name}: {failure.why}" for failure in bench.failures)


_OUTCOMES = ("planned", "passed", "failed", "skipped", "missing", "cancelled")
_OF_FAIL = (*(_count(name, place) for place, name in enumerate(_OUTCOMES, 25)), CsvField("failures", 32, _failures))
_OF_INTERVAL = (
    CsvField("ci95_low", 17, lambda bench: bench.interval and bench.interval[0]),
    CsvField("ci95_high", 18, lambda bench: bench.interval and bench.interval[1]),
)
_OF_MEMORY = (
    CsvField("memory_peak_MiB", 11, lambda bench: bench.memory_peak_mib),
    CsvField("energy_J", 12, lambda bench: bench.energy_j),
)
_OF_VALIDITY = (
    CsvField("outcome", 2),
    CsvField("validity", 16),
    CsvField("reasons", 31, lambda bench: " ".join(bench.doubts)),
)
_OF_SPREAD = (CsvField("spread_processes", 10), CsvField("spread", 22))

BENCH = Column("bench", lambda b: b.bench, is_text=True, page=1, csv=(CsvField("bench", 1),))
PERF = Column(
    "perf",
    lambda b: format_number(b.perf and b.perf * in_milliseconds(b)[0]),
    page=3,
    csv=(CsvField("perf", 5), CsvField("direction", 7)),
)
HALF_WIDTH = Column(
    "±", half_width, page=4, csv=(CsvField("uncertainty", 19, _expanded), CsvField("largest", 20, _largest))
)
UNITS = Column("units", lambda b: in_milliseconds(b)[1], is_text=True, page=5, csv=(CsvField("units", 6),))
COLUMNS: tuple[Column, ...] = (
    BENCH,
    Column("fail", lambda b: str(not_passed(b)), spare=9, csv=_OF_FAIL),
    Column(
        "processes",
        lambda b: str(len(b.processes)),
        spare=7,
        page=9,
        csv=(CsvField("processes", 4, lambda b: len(b.processes)),),
    ),
    Column("ngpu", lambda b: str(b.ngpu), spare=4, page=10, csv=(CsvField("ngpu", 3),)),
    PERF,
    HALF_WIDTH,
    UNITS,
    Column("95 % interval", interval_cell, is_on_page_only=True, page=6, csv=_OF_INTERVAL),
    Column("all instances", _of_all_instances, is_optional=True, spare=11, csv=(CsvField("score", 15),)),
    Column("std %", lambda b: percent_cell(b.spread), spare=6, csv=_OF_SPREAD),
    Column("within %", lambda b: percent_cell(b.spread_within), spare=5, csv=(CsvField("spread_within", 8),)),
    Column(
        "peak memory MiB",
        lambda b: "" if b.memory_peak_mib is None else f"{b.memory_peak_mib:.0f}",
        spare=3,
        csv=_OF_MEMORY,
    ),
    Column(
        "first step s",
        lambda b: "" if b.first_step_s is None else f"{b.first_step_s:.2f}",
        spare=2,
        csv=(CsvField("first_step_s", 13),),
    ),
    Column("weight", lambda b: "" if b.weight is None else f"{b.weight:g}", spare=1, csv=(CsvField("weight", 14),)),
    Column("validity", validity_text, is_text=True, page=2, csv=_OF_VALIDITY),
    Column("x reference", lambda b: reference_ratio_text(b, 4), is_optional=True, page=7),
    Column("reference's validity", lambda b: b.reference_validity, is_text=True, is_optional=True, spare=10, page=8),
    Column(
        "devices %",
        lambda b: percent_cell(b.spread_devices),
        is_on_page_only=True,
        csv=(CsvField("spread_devices", 9),),
    ),
)

LEGEND = (
    "fail: steps that did not pass; perf: rate of each copy of the program, geometric mean over processes;"
    " all instances: total rate of the copies that run at the same time, in units",
    "±: half-width of the 95 % interval that holds the undisturbed number; std %: over processes; within %: between the"
    " steps of a process",
)
PAGE_LEGEND = (
    "devices %: between the means of devices; 95 % interval: holds the undisturbed perf, in units, from 3 repeats on",
)
REFERENCE_LEGEND = (
    "x reference: perf over the reference's, of all instances; > 1 means better; lower-is-better metrics are inverted;"
    " ?: the reference's number is suspect"
)


def run_table(benches: Iterable[BenchSummary]) -> Table:
    """Return the table of a report in text."""
    return table_of([column for column in COLUMNS if not column.is_on_page_only], benches)


def page_table(benches: Iterable[BenchSummary]) -> tuple[Table, list[str]]:
    """Return the table of a page, without its empty columns, and the headings of those that are not optional."""
    # What a reader looks for first stands left; the text formats keep their order.
    columns = sorted(COLUMNS, key=lambda column: column.page)
    table, empty = _whole_table(columns, benches).without_empty()
    optional = {column.heading for column in COLUMNS if column.is_optional}
    return table, [heading for heading in empty if heading not in optional]


def table_of(columns: Sequence[Column], benches: Iterable[BenchSummary]) -> Table:
    """Return a row for each benchmark with these columns, without the optional ones that are empty."""
    return _whole_table(columns, benches).without_empty([each.heading for each in columns if each.is_optional])[0]


def _whole_table(columns: Sequence[Column], benches: Iterable[BenchSummary]) -> Table:
    spare = sorted((column for column in columns if column.spare), key=lambda column: column.spare)
    return Table(
        headings=tuple(column.heading for column in columns),
        is_text=tuple(column.is_text for column in columns),
        rows=tuple(tuple(column.cell(bench) for column in columns) for bench in ordered(benches)),
        spare=tuple(column.heading for column in spare),
    )


_FIELDS = sorted((each for column in COLUMNS for each in column.csv), key=lambda each: each.place)
CSV_FIELDS = ("run", "profile", *(each.name for each in _FIELDS), "capsule")


def csv_rows(summaries: Iterable[Summary]) -> list[dict[str, CsvValue]]:
    """Return the fields of each run and benchmark."""
    return [
        {**picked(summary, "run", "profile", "capsule"), **{each.name: each.of(bench) for each in _FIELDS}}
        for summary in summaries
        for bench in ordered(summary.benchmarks)
    ]
