"""What each format says of two curves."""

from __future__ import annotations

import csv
import io
import json
import random
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest
from jsonschema import Draft202012Validator

from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import Comparison
from milabench.analysis.serving_model import CurvePoint, PointValue
from milabench.report.registry import FORMATS
from milabench.suite_check.schemas import schema_file
from tests.unit.analysis.test_compare import bench, system
from tests.unit.sweeps.test_comparison import STEADY, curve, point, server

LOADS = (1, 2, 4, 8, 16)
FAILED = CurvePoint(name="concurrency=32", concurrency=32, state="failed", why="the server ended")
METRICS = ("output_tps", "user_tps", "ttft_p90_ms")


@pytest.fixture(scope="module")
def slower() -> Comparison:
    """A server that fails at its last point and is 20 per cent slower at the others; its curve has other points."""
    about = {"client": "vllm", "version": "0.32.0", "slo": {"ttft_p90_ms": 300.0}}
    old = curve(*(point(load) for load in (*LOADS, 32)), best="concurrency=8", slo_concurrency=8, **about)
    points = (point(load, [1.2 * each for each in STEADY]) for load in LOADS)
    return compare_systems([server("old", old), server("new", curve(*points, FAILED, **about))])


def written(comparison: Comparison, form: str) -> str:
    return FORMATS[form].renderer.render_comparison(comparison)


def rows_of(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if " | " in line:
            yield [cell.strip() for cell in line.strip("| ").split(" | ")]


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_reader_sees_every_point_what_has_no_ratio_and_how_far_each_keeps_its_slo(
    slower: Comparison, form: str
) -> None:
    shown = written(slower, form)
    ratios = [row for row in rows_of(shown) if "SLOWER" in row]
    assert [cell for row in ratios for cell in row if cell.startswith("concurrency=")] == [
        f"concurrency={load}" for _ in METRICS for load in LOADS
    ]
    assert all("0.8333" in row for row in ratios)
    systems = {row[0]: row[2:6] for row in rows_of(shown) if "vllm 0.32.0" in row}
    assert systems == {
        "old": ["6/6", "concurrency=8", "666.69", "concurrency 8"],
        "new": ["5/6", "none meets the SLO", "", "none"],
    }
    assert "old: measured; new: failed: the server ended" in shown
    assert "curve of chat on new, 15 ratios: 15 slower" in " ".join(shown.split())


def test_a_table_has_a_row_for_each_ratio_and_columns_for_them_only_where_there_are_curves(slower: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(written(slower, "csv"))))
    ratios = [row for row in rows if row["metric"]]
    assert {(row["metric"], row["point"]) for row in ratios} == {
        (metric, f"concurrency={load}") for metric in METRICS for load in LOADS
    }
    assert {(row["bench"], row["verdict"], row["first_n"], row["n"]) for row in ratios} == {
        ("chat", "SLOWER", "3", "3")
    }
    assert all(float(row["ci95_low"]) < 1 / 1.2 < float(row["ci95_high"]) for row in ratios)
    without = compare_systems([system("old", bench()), system("new", bench())])
    assert not {"point", "metric"} & set(written(without, "csv").splitlines()[0].split(","))


def test_programs_get_the_curves_and_the_ratios(slower: Comparison) -> None:
    value = json.loads(written(slower, "json"))
    Draft202012Validator(json.loads(schema_file("comparison").read_text())).validate(value)
    (curves,) = value["comparison"]["curves"]
    assert [drawn["name"] for drawn in curves["curves"]] == ["old", "new"]
    first = curves["ratios"][0]
    assert (first["metric"], first["point"], first["launches"]) == ("output_tps", "concurrency=1", [3, 3])
    assert first["contrast"]["ratio"] == pytest.approx(1 / 1.2)


def test_a_build_server_fails_a_slower_curve(slower: Comparison) -> None:
    cases = {case.get("name"): case for case in ET.fromstring(written(slower, "junit")).iter("testcase")}
    failure = cases["chat curve"].find("failure")
    assert failure is not None and (failure.text or "").count("SLOWER") == 15


def test_a_run_compared_with_its_like_fails_nothing() -> None:
    same = [server(name, curve(*(point(load) for load in LOADS), area=(10, 11, 12))) for name in ("old", "new")]
    cases = ET.fromstring(written(compare_systems(same), "junit")).iter("testcase")
    assert [case.find("failure") for case in cases] == [None, None, None]


@pytest.mark.parametrize("width", [80, 100])
def test_the_tables_fit_a_terminal(slower: Comparison, width: int) -> None:
    shown = FORMATS["text"].fitted(width).render_comparison(slower)
    assert max(map(len, (line for line in shown.splitlines() if " | " in line or "-+-" in line))) <= width
    assert shown.count("SLOWER") >= 15


def test_a_page_draws_the_curves_over_each_other_and_lists_every_ratio(slower: Comparison) -> None:
    page = written(slower, "html")
    section = page[page.index('id="curves"') : page.index('id="index"')]
    assert section.count("<figure>") == 2 and section.count('class="dots a"') and section.count('class="dots b"')
    assert section.count('data-state="SLOWER"') == 15
    assert "concurrency=32: old: measured; new: failed: the server ended" in section
    assert 'id="curves"' not in written(compare_systems([system("old", bench()), system("new", bench())]), "html")


@pytest.mark.slow
def test_whatever_numbers_two_reports_hold_every_format_shows_them() -> None:
    rng = random.Random(18)
    extremes = (0.0, 1e-60, 1e-50, 1.0, 7.5, 1e9, 1e50, -1.0, -1e50)

    def odd_number() -> PointValue:
        launches = tuple(rng.choice(extremes) for _ in range(rng.randint(0, 4)))
        return PointValue(
            value=rng.choice(extremes), launches=launches, ci95=(rng.choice(extremes), rng.choice(extremes))
        )

    def odd_point(load: float) -> CurvePoint:
        values = {metric: odd_number() for metric in METRICS if rng.random() < 0.9}
        return CurvePoint(name=f"rate={load}", rate=rng.choice((None, 0.0, load, 1e50)), values=values)

    for _ in range(60):
        sides = [
            curve(*map(odd_point, range(rng.randint(0, 5))), slo={"ttft_p90_ms": rng.choice(extremes)}) for _ in "ab"
        ]
        comparison = compare_systems([server(name, side) for name, side in zip("ab", sides, strict=True)])
        assert all(written(comparison, form) for form in FORMATS)
