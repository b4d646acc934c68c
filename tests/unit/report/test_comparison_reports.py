"""The golden files are read in review like code; UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import csv
import io
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import Comparison, System
from milabench.analysis.job_mix import costs_of
from milabench.analysis.summary import summarise
from milabench.analysis.system_diff import Difference, system_differences
from milabench.ci import junit
from milabench.report import csv as csv_report
from milabench.report import json as json_report
from milabench.report import text
from milabench.report.registry import FORMATS
from tests.recorded_run import Recorded, rates, record
from tests.unit.report.test_reports import rounded

ENDINGS = {"text": "txt", "markdown": "md", "csv": "csv", "json": "json", "junit": "junit.xml"}
COSTS = {"price": 250000, "years": 4, "power_W": 9000, "pue": 1.3, "electricity": 0.25, "currency": "EUR"}


def system(base: Path, name: str, faster: float, *, fails: bool, batch: int) -> System:
    shape = (1.0, 1.01, 0.99, 1.005)
    benches = [
        Recorded(bench=bench, repeat=repeat, events=rates(*[level * change] * 3, units=units))
        for bench, level, units, scale in (
            ("digits", 800.0, "images/s", faster),
            ("sft", 5000.0, "tokens/s", 1.0 + (faster - 1) / 50),
            ("ppo|cleanrl", 90.0, "env steps/s", 1 / faster),
        )
        for repeat, change in enumerate(scale * each for each in shape)
    ]
    if fails:
        benches.append(Recorded(bench="llama", outcome="failed", why="out-of-memory", detail="79 of 80 GiB", events=()))
    else:
        benches.append(Recorded(bench="llama", events=rates(3.0)))
    suite = {bench: {"argv": {"--batch-size": batch}} for bench in ("digits", "sft")}
    run = record(base, *benches, name=name, manifest={"suite": suite, "profile": "default"})
    return System(name=name, summary=summarise(run), costs=costs_of(COSTS), manifest=run.manifest)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, tuple[Difference, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("compared"))
        systems = [
            system(Path("base"), "old", 1.0, fails=False, batch=64),
            system(Path("base"), "new", 1.5, fails=True, batch=128),
        ]
        comparison = compare_systems(systems, across=True)
        return comparison, system_differences(systems, comparison.rows)


@pytest.mark.parametrize("form", list(ENDINGS))
def test_a_comparison_is_what_the_golden_file_shows(
    found: tuple[Comparison, tuple[Difference, ...]], form: str, root: Path
) -> None:
    told = rounded(FORMATS[form].renderer.render_comparison(*found))
    golden = root / "tests" / "golden" / f"compare.{ENDINGS[form]}"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(told)
    assert told == golden.read_text()


def test_failures_and_exclusions_stand_before_the_first_number(
    found: tuple[Comparison, tuple[Difference, ...]],
) -> None:
    told = text.render_comparison(*found)
    assert told.index("79 of 80 GiB") < told.index("\nindex\n") < told.index("\nbenchmarks\n")
    assert told.index("llama: new failed") < told.index("\nindex\n")


def test_differences_are_only_told_when_asked_for(found: tuple[Comparison, tuple[Difference, ...]]) -> None:
    assert "what differs" not in text.render_comparison(found[0])
    assert "differences" not in json.loads(json_report.render_comparison(found[0]))["comparison"]
    assert json.loads(json_report.render_comparison(*found))["comparison"]["differences"]


def test_every_benchmark_and_every_index_is_a_row_of_the_table(
    found: tuple[Comparison, tuple[Difference, ...]],
) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_report.render_comparison(found[0]))))
    assert [row["bench"] for row in rows] == ["digits", "llama", "ppo|cleanrl", "sft", "(index)"]
    assert rows[0]["verdict"] == "FASTER" and rows[1]["excluded"].startswith("new failed")


def test_a_build_server_sees_what_is_slower_or_failed(found: tuple[Comparison, tuple[Difference, ...]]) -> None:
    root = ET.fromstring(junit.render_comparison(found[0]))
    failed = {case.get("name") for case in root.iter("testcase") if case.find("failure") is not None}
    assert failed == {"llama", "ppo|cleanrl"}
    assert (root.get("tests"), root.get("failures")) == ("5", "2")


def test_text_that_xml_cannot_hold_is_left_out_of_it(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(outcome="failed", why="exit", detail="\x00bad \x1b[31m<&>\ufffe"))
    ET.fromstring(junit.render([summarise(run)]))


@pytest.mark.parametrize("width", [80, 100])
def test_the_tables_of_a_comparison_fit_a_terminal(
    found: tuple[Comparison, tuple[Difference, ...]], width: int
) -> None:
    shown = text.fitted(width).render_comparison(*found)
    tables = [line for line in shown.splitlines() if " | " in line or "-+-" in line]
    assert max(map(len, tables)) <= width and "--wide shows everything" in shown
    # What decides stays, whatever is left out.
    assert "1.5000" in shown and "FASTER" in shown and "[1.4780, 1.5223]" in shown
    assert max(map(len, text.render_comparison(*found).splitlines())) > width
