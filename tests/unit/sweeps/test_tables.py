"""What each format says of the sweep over a server."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from milabench.analysis.serving_model import POINT_METRICS, CurvePoint, PointValue, ServingCurve
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import Summary
from milabench.report.model import result_text, validity_text
from milabench.report.registry import FORMATS
from milabench.suite_check.schemas import schema_file
from milabench.sweeps.tables import curve_lines, point_remarks, points_table
from tests.changed_values import replace
from tests.recorded_run import Recorded, rates, record
from tests.serving_runs import LOADS, RATES, SLO, serving_run

FAILED = {"concurrency=32": "the server ended", "concurrency=64": "the server ended", "rate=4": "too many requests"}
POINTS = [*(f"concurrency={load}" for load in LOADS), *(f"rate={rate:g}" for rate in RATES)]
Made = Callable[..., Summary]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    def of_sweep(**how: Any) -> Summary:
        return summarise(serving_run(tmp_path_factory.mktemp("swept"), **how))

    return of_sweep


@pytest.fixture(scope="module")
def whole(made: Made) -> Summary:
    return made()


@pytest.fixture(scope="module")
def torn(made: Made) -> Summary:
    return made(failed=FAILED)


def written(summary: Summary, form: str) -> str:
    return FORMATS[form].renderer.render([summary])


def tables(text: str) -> dict[str, list[dict[str, str]]]:
    """The rows of each table of a text by the line above it, by their headings."""
    found: dict[str, list[dict[str, str]]] = {}
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if "-+-" in line:
            headings = [cell.strip() for cell in lines[at - 1].split(" | ")]
            end = lines.index("", at)
            rows = ([cell.strip(" |") for cell in row.split(" | ")] for row in lines[at + 1 : end])
            found[lines[at - 2]] = [dict(zip_longest(headings, row, fillvalue="")) for row in rows]
    return found


def points_of(summary: Summary) -> Mapping[str, CurvePoint]:
    (bench,) = summary.benchmarks
    assert bench.serving is not None
    return {point.name: point for point in bench.serving.points}


@pytest.mark.parametrize("form", ["brief", "text"])
def test_a_terminal_has_a_row_for_each_point_with_what_it_came_to(torn: Summary, form: str) -> None:
    rows = tables(written(torn, form))["curve of chat, asked by plain 1.0, seed 1"]
    assert [row["point"] for row in rows] == POINTS
    known = points_of(torn)
    for row in rows[:5]:
        values = known[row["point"]].values
        assert row["tokens/s"].split() == [f"{values['output_tps'].value:.2f}", "±1.2%"]
        assert float(row["TTFT p90"]) == pytest.approx(values["ttft_p90_ms"].value, abs=0.01)
        assert (row["SLO"], row["errors %"]) == ("yes", "0.0")
    assert [row["remarks"] for row in rows] == ["", "", "", "", "best", "failed", "failed", "", "failed"]


@pytest.mark.parametrize("form", ["brief", "text", "markdown"])
def test_why_points_failed_is_said_once_for_those_that_are_alike(torn: Summary, form: str) -> None:
    shown = written(torn, form).replace("**", "")
    assert shown.count("concurrency=32, concurrency=64: failed: the server ended") == 1
    assert shown.count("the server ended") == 1 and shown.count("too many requests") == 1


def test_a_reader_of_markdown_has_the_same_table(torn: Summary) -> None:
    rows = [line for line in written(torn, "markdown").splitlines() if line.startswith(("| concurrency=", "| rate="))]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [
        *POINTS,
        *(p for p in POINTS if p not in FAILED),
    ]


def test_the_lines_below_say_the_number_and_how_far_the_slo_is_kept(whole: Summary) -> None:
    (bench,) = whole.benchmarks
    assert bench.serving is not None and bench.perf is not None and bench.ci95 is not None
    assert curve_lines("chat", bench.serving)[:2] == (
        f"best point of chat: concurrency=16, {bench.perf:.2f} [{bench.ci95[0]:.2f}, {bench.ci95[1]:.2f}] tokens/s, "
        "the number of the benchmark",
        "SLO: TTFT p90 <= 500 ms, TPOT p90 <= 50 ms; kept at up to concurrency 16, rate 4",
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"slo": {"ttft_p90_ms": 1}}, "SLO: TTFT p90 <= 1 ms; no point meets it"),
        ({"slo": {"ttft_p90_ms": 1}}, "best point of chat: none meets the SLO, so that it has no number"),
        ({"slo": {}}, "SLO: none stated, so that every point counts"),
        ({"slo": {}}, "best point of chat: concurrency=64, 8"),
        ({"loads": (1, 4), "rates": ()}, "2 points: fewer than 7 do not show where a curve bends"),
        ({"loads": (1,), "rates": (), "failed": {"concurrency=1": "no"}}, "chat: none: no point was measured"),
        ({"loads": (), "rates": ()}, "chat: none: no point was measured"),
        (
            {"slo": {"error_rate": 0.01}, "loads": (2,)},
            "SLO: requests with an error <= 0.01; kept at up to concurrency 2",
        ),
    ],
)
@pytest.mark.parametrize("form", ["brief", "text"])
def test_what_a_curve_does_not_have_is_said(made: Made, form: str, how: dict[str, Any], said: str) -> None:
    shown = written(made(**how), form)
    assert said in shown and "at least 7 show" not in shown


def test_a_limit_of_a_metric_that_this_version_does_not_know_is_shown_without_a_unit() -> None:
    assert "SLO: my_metric <= 5" in curve_lines("chat", ServingCurve(slo={"my_metric": 5.0}))


def test_a_sweep_without_a_number_says_why(made: Made) -> None:
    none = made(slo={"ttft_p90_ms": 1})
    assert result_text(none).endswith("passed; chat: no point meets the SLO")
    assert validity_text(none.benchmarks[0]) == "no point meets the SLO"
    # Nothing was measured: nobody knows what would have met it.
    lines = curve_lines("chat", replace(none.benchmarks[0].serving or ServingCurve(), points=()))
    assert "SLO: TTFT p90 <= 1 ms" in lines


def test_the_tables_hold_every_number_once(whole: Summary) -> None:
    shown = tables(written(whole, "text"))
    assert "other metrics" not in shown
    times = shown["times of chat, ms"]
    assert [row["point"] for row in times] == POINTS
    quantiles = [metric.label for metric in POINT_METRICS.values() if metric.units == "ms"]
    assert set(times[0]) == {"point", *quantiles}
    # Three launches of 64 requests, which differ, are too few for a p99.
    assert all(
        row[name] == "-" if name.endswith("p99") else float(row[name]) > 0 for row in times for name in quantiles
    )
    first = shown["curve of chat, asked by plain 1.0, seed 1"][6]
    assert (first["KV cache %"], first["batch"]) == ("100.0", "16.0") and "waiting" not in first


def test_numbers_that_are_not_of_the_curve_stay_among_the_other_metrics(whole: Summary) -> None:
    (bench,) = whole.benchmarks
    more = {"metric": "queue_depth", "case": "concurrency=1", "value": 3.0, "units": ""}
    shown = written(replace(whole, benchmarks=(replace(bench, metrics=(*bench.metrics, more)),)), "text")
    assert [row["metric"] for row in tables(shown)["other metrics"]] == ["queue_depth concurrency=1"]


def test_energy_and_costs_have_columns_where_they_are_known(whole: Summary) -> None:
    (bench,) = whole.benchmarks
    assert bench.serving is not None
    point = replace(
        bench.serving.points[0], values={"cost_per_mtok": PointValue(value=1.25)}, notes=("client-bound: x",), few=()
    )
    other = replace(point, name="scenario=offline", values={"joules_per_mtok": PointValue(value=20.0)}, meets_slo=None)
    table = points_table("chat", replace(bench.serving, points=(point, other), currency="EUR"))
    assert table.headings == ("point", "SLO", "J/M tokens", "EUR/M tokens", "remarks")
    assert table.rows == (
        ("concurrency=1", "yes", "", "1.2500", "client-bound"),
        ("scenario=offline", "", "20.00", "", "client-bound"),
    )
    curve = replace(bench.serving, points=(point, replace(other, notes=("client-bound: x", "errors: 1 of 9"))))
    assert point_remarks(curve) == [
        ("concurrency=1, scenario=offline", "client-bound: x"),
        ("scenario=offline", "errors: 1 of 9"),
    ]
    assert point_remarks(curve, has_notes=False) == []


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("form", ["brief", "text"])
def test_the_tables_fit_a_terminal(torn: Summary, form: str, width: int) -> None:
    shown = FORMATS[form].fitted(width).render([torn])
    lines = shown.splitlines()
    title = lines.index("curve of chat, asked by plain 1.0, seed 1")
    rows = lines[title + 1 : title + 3 + len(POINTS)]
    assert max(map(len, rows)) <= width and all(name in row for name, row in zip(POINTS, rows[2:], strict=True))
    assert {"tokens/s", "SLO"} <= set(rows[0].replace("|", " ").split())


def test_a_spreadsheet_has_every_number_of_every_point_after_the_benchmarks(torn: Summary) -> None:
    rows = list(csv.DictReader(io.StringIO(written(torn, "csv"))))
    assert [row["bench"] for row in rows if not row["point"]] == ["chat"]
    known = points_of(torn)
    numbers = {(row["point"], row["metric"]): row for row in rows if row["metric"]}
    assert set(numbers) == {(name, metric) for name, point in known.items() for metric in point.values}
    for (name, metric), row in numbers.items():
        value = known[name].values[metric]
        assert float(row["perf"]) == value.value and row["processes"] == "3"
        assert (row["units"], row["outcome"]) == (POINT_METRICS[metric].units, "measured")
        assert value.ci95 is not None and float(row["ci95_low"]) == value.ci95[0]
    failed = {row["point"]: row["failures"] for row in rows if row["outcome"] == "failed"}
    assert failed == FAILED


def test_without_curves_a_spreadsheet_has_the_columns_it_had(tmp_path: Path) -> None:
    summary = summarise(record(tmp_path, Recorded(events=rates(1.0, 2.0, 3.0))))
    assert not {"point", "metric", "meets_slo"} & set(written(summary, "csv").splitlines()[0].split(","))


def test_programs_get_the_points(torn: Summary) -> None:
    value = json.loads(written(torn, "json"))
    Draft202012Validator(json.loads(schema_file("report").read_text())).validate(value)
    (bench,) = value["benchmarks"]
    assert [(point["name"], point["state"]) for point in bench["serving"]["points"]] == [
        (name, "failed" if name in FAILED else "measured") for name in POINTS
    ]


def cases(summary: Summary) -> dict[str | None, ET.Element]:
    return {case.get("name"): case for case in ET.fromstring(written(summary, "junit")).iter("testcase")}


def test_a_build_server_fails_points_that_are_missing_and_a_curve_without_a_number(
    whole: Summary, torn: Summary, made: Made
) -> None:
    assert {name: case.find("failure") for name, case in cases(whole).items()} == {"chat": None, "chat curve": None}
    missing = cases(torn)["chat curve"].find("failure")
    assert missing is not None and missing.get("message") == "points-missing"
    assert "concurrency=32, concurrency=64: failed: the server ended" in (missing.text or "")
    without = cases(made(slo={"ttft_p90_ms": 1.0}))["chat"].find("failure")
    assert without is not None and "best point of chat: none meets the SLO" in (without.text or "")


def test_a_page_draws_the_curve_and_lists_its_points(torn: Summary, tmp_path: Path) -> None:
    page = written(torn, "html")
    section = page[page.index('id="curves"') :]
    section = section[: section.index("</section>")]
    assert section.count("<figure>") == 3 and section.count('class="dots a"') == 6 + 5 + 1
    assert section.count('data-state="failed"') == 3 and "kept at up to concurrency 16, rate 1" in section
    without = summarise(record(tmp_path, Recorded(events=rates(1.0, 2.0, 3.0))))
    assert "Curves" not in written(without, "html")


def test_names_from_records_are_text_in_every_format(made: Made) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m | x"
    summary = made(loads=(1,), rates=(), failed={"concurrency=1": hostile}, slo=SLO)
    for form in ("brief", "text", "markdown", "html", "csv", "junit"):
        assert "\x1b" not in written(summary, form)
    assert written(summary, "html").count("<script>") == 1
