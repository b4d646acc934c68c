"""Results as text; above all the JSON that Google Benchmark's own tools read."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from typing import Any

import pytest
from programs import refuse

from benchmate.cases.formats import FORMATS, Style
from benchmate.cases.registry import Case
from benchmate.cases.results import CaseResult, aggregate_results, make_result
from benchmate.machine_context import google_context
from benchmate.supervisor import ProcessExit


def case(name: str, family: int = 0, instance: int = 0, **params: Any) -> Case:
    return Case(name=name, family=family, instance=instance, subject=None, params=params)


def passed(of: Case, repetition: int = 0, wall_ns: int = 2000, iterations: int = 2, **more: Any) -> CaseResult:
    said = {"outcome": "passed", "iterations": iterations, "wall_ns": wall_ns, "cpu_ns": wall_ns, **more}
    return make_result(of, repetition, said, ProcessExit(), math.inf)


def failed(of: Case, repetition: int = 0) -> CaseResult:
    said = {"outcome": "failed", "why": "exit", "detail": "run: ValueError: a,\n b"}
    return make_result(of, repetition, said, ProcessExit(), math.inf)


def written(
    kind: str, results: Sequence[CaseResult], *, unit: str = "ns", tabular: bool = False, only: bool = False
) -> str:
    out = io.StringIO()
    made = FORMATS[kind](out, Style(unit=unit, tabular=tabular, aggregates_only=only))
    made.begin(
        {"date": "today", "num_cpus": 2, "host_name": "h", "executable": "bench.py"}, [r.case.name for r in results]
    )
    for result in results:
        made.add(result)
    made.end(results, aggregate_results(results))
    return out.getvalue()


def google(results: Sequence[CaseResult], **how: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written("google-json", results, **how), parse_constant=refuse)
    return found


RUNS = [
    passed(case("sum/8", 0, 0), items=4, counters={"hits": 1.0, "bad": math.nan}),
    passed(case("sum/8", 0, 0), 1, 4000, items=4, counters={"hits": 3.0}),
    failed(case("sum/64", 0, 1)),
    passed(case("sort", 1, 0), wall_ns=3_000_000, iterations=1),
]


class Comparison:
    """What compare.py does with two files: checks the version, filters by run_name, sorts, pairs by name and unit, compares."""

    def __init__(self, one: dict[str, Any], other: dict[str, Any], pattern: str = "") -> None:
        self.one, self.other = (self.loaded(each, pattern) for each in (one, other))

    @staticmethod
    def loaded(file: dict[str, Any], pattern: str) -> list[dict[str, Any]]:
        assert file["context"].get("json_schema_version", 1) == 1
        kept = [row for row in file["benchmarks"] if re.search(pattern, row.get("run_name", row["name"]))]
        for key in ("repetition_index", "per_family_instance_index", "family_index"):
            kept.sort(key=lambda row: row.get(key, -1))
        return sorted(kept, key=lambda row: ["iteration", "aggregate"].index(row["run_type"]))

    def rows(self) -> list[tuple[str, float, float]]:
        """(name, change of real time, change of CPU time) of each pair."""
        found = []
        for name in dict.fromkeys(row["name"] for row in self.one):
            both = [
                [row for row in rows if row["name"] == name and {"time_unit", "real_time", "cpu_time"} <= row.keys()]
                for rows in (self.one, self.other)
            ]
            if not all(both):
                continue
            unit = both[0][0]["time_unit"]
            for old, new in zip(*([row for row in rows if row["time_unit"] == unit] for rows in both), strict=True):
                changes = [(new[key] - old[key]) / abs(old[key]) for key in ("real_time", "cpu_time")]
                found.append((name, *changes))
        return found


def test_compare_py_pairs_what_was_measured_and_leaves_out_what_failed() -> None:
    slower = [passed(one.case, one.repetition, (one.wall_ns or 0) * 2, one.iterations) for one in RUNS]
    found = Comparison(google(RUNS), google(slower)).rows()
    assert found == [
        ("sum/8", 1.0, 1.0),
        ("sum/8", 1.0, 1.0),
        ("sort", 1.0, 1.0),
        ("sum/8_mean", 1.0, 1.0),
        ("sum/8_median", 1.0, 1.0),
        ("sum/8_stddev", 1.0, 1.0),
        ("sum/8_cv", 0.0, 0.0),
    ]


def test_compare_py_filters_by_the_name_without_its_statistic() -> None:
    assert {row["run_name"] for row in Comparison.loaded(google(RUNS), "^sum/8$")} == {"sum/8"}


def test_a_run_has_the_keys_of_google_benchmark() -> None:
    assert google(RUNS)["benchmarks"][0] == {
        "name": "sum/8",
        "family_index": 0,
        "per_family_instance_index": 0,
        "run_name": "sum/8",
        "run_type": "iteration",
        "repetitions": 2,
        "repetition_index": 0,
        "threads": 1,
        "iterations": 2,
        "real_time": 1000.0,
        "cpu_time": 1000.0,
        "time_unit": "ns",
        "items_per_second": 4e6,
        "hits": 1.0,
        "bad": None,
        "nonfinite": ["bad"],
    }


def test_a_failed_run_is_in_the_file_and_has_no_time() -> None:
    row = next(row for row in google(RUNS)["benchmarks"] if row["name"] == "sum/64")
    assert (row["error_occurred"], row["error_message"]) == (True, "run: ValueError: a, b")
    assert "real_time" not in row


def test_aggregates_are_those_of_a_sample_and_have_no_repetition() -> None:
    rows = {row["aggregate_name"]: row for row in google(RUNS)["benchmarks"] if row["run_type"] == "aggregate"}
    assert [rows[name]["real_time"] for name in ("mean", "median")] == [1500.0, 1500.0]
    assert rows["stddev"]["real_time"] == pytest.approx(500 * math.sqrt(2))
    assert rows["cv"]["real_time"] == pytest.approx(math.sqrt(2) / 3)
    assert (rows["cv"]["aggregate_unit"], rows["mean"]["aggregate_unit"]) == ("percentage", "time")
    assert rows["mean"]["hits"] == 2.0
    assert {row["iterations"] for row in rows.values()} == {2}
    assert not any("repetition_index" in row for row in rows.values())


def test_times_are_in_the_unit_asked_for() -> None:
    row = google(RUNS, unit="us")["benchmarks"][0]
    assert (row["real_time"], row["time_unit"]) == (1.0, "us")


def test_aggregates_alone_hide_single_runs_but_not_failures() -> None:
    names = [row["name"] for row in google(RUNS, only=True)["benchmarks"]]
    assert names == ["sum/8_mean", "sum/8_median", "sum/8_stddev", "sum/8_cv", "sum/64", "sort"]


def test_the_context_says_what_the_schema_asks_for() -> None:
    context = google_context("bench.py", {"branch": "main", "executable": "other"})
    assert {"date", "host_name", "executable", "num_cpus", "caches", "load_avg", "library_build_type"} <= context.keys()
    assert (context["json_schema_version"], context["branch"], context["executable"]) == (1, "main", "bench.py")


def test_csv_of_google_benchmark_has_counters_behind_its_columns() -> None:
    lines = written("google-csv", RUNS[:1] + RUNS[2:3]).splitlines()
    assert lines[0].startswith("name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,")
    assert lines[0].endswith('error_occurred,error_message,"bad","hits"')
    assert lines[1:] == [
        "sum/8,2,1000.0,1000.0,ns,,4000000.0,,,,nan,1.0",
        'sum/64,0,,,,,,,true,"run: ValueError: a, b",,',
    ]


def test_the_console_shows_counters_beside_the_name_or_in_columns() -> None:
    lines = written("google-console", [RUNS[1], RUNS[3]]).splitlines()
    assert lines[-2].split() == ["sum/8", "2000", "ns", "2000", "ns", "2", "items_per_second=2M", "hits=3"]
    assert lines[-1].split() == ["sort", "3000000", "ns", "3000000", "ns", "1"]
    assert written("google-console", [RUNS[1]], tabular=True).splitlines()[-3].split()[-2:] == [
        "items_per_second",
        "hits",
    ]
    assert written("google-console", [RUNS[2]]).splitlines()[-1].split(None, 1)[1] == "ERROR: 'run: ValueError: a, b'"


def test_the_short_table_has_nanoseconds_and_bytes() -> None:
    lines = written("stdout", [passed(case("x"), memory={"cuda_memory_usage": 7}), RUNS[2]]).splitlines()
    assert lines == ["Name Wall Time CUDA Memory", "x 1000 7", "sum/64 NaN NaN failed (exit): run: ValueError: a, b"]


def test_csv_begins_with_the_three_columns_of_the_few_bit_library() -> None:
    header, row = written("csv", [passed(case("x"), wall_ns=5, iterations=1)]).splitlines()
    assert header.startswith("cuda_memory_usage,name,wall_time,")
    assert row.startswith("NaN,x,5,")


def test_our_json_holds_everything_in_seconds_and_bytes() -> None:
    found = json.loads(written("json", [passed(case("x", n=8), memory={"host_memory_start": 9}), failed(case("y", 1))]))
    assert found["schema"] == 1
    assert found["cases"][0]["params"] == {"n": 8}
    assert found["cases"][0]["results"][0]["wall_time"] == 1e-6
    assert found["cases"][0]["results"][0]["memory"] == {"host_memory_start": 9}
    assert found["cases"][1]["results"][0]["outcome"] == "failed"
