"""Lists in other people's columns: in their order, with every key, and marked as unverified."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from milabench.history.export_command import command as export
from milabench.history.result_rows import COLUMNS, DESCRIPTION
from tests.recorded_run import SYSTEM, Recorded, rates, record

# As github mlcommons/inference b66003e, tools/submission/submission_checker, lists them.
FIRST, LAST = (
    ["Organization", "Availability", "Division", "SystemType", "SystemName"],
    ["design_power_watts", "PrivateID"],
)


@pytest.fixture
def run(tmp_path: Path) -> str:
    steps = [
        Recorded(bench=bench, tag=f"D{device}", devices=(device,), events=rates(100.0, 100.0))
        for bench in ("digits", "=cmd()")
        for device in (0, 1)
    ]
    nodes = [{**SYSTEM["nodes"][0], "name": name, "hostname": name} for name in ("n1", "n2")]
    broken = Recorded(bench="broken", outcome="failed", why="crash", events=())
    return str(record(tmp_path, *steps, broken, manifest={"system": {**SYSTEM, "nodes": nodes}}).path)


def exported(*words: str) -> str:
    done = CliRunner().invoke(export, list(words), standalone_mode=False)
    assert done.exception is None, done.output
    return done.output


def test_a_row_for_each_number_in_the_order_of_the_columns(run: str) -> None:
    rows = list(csv.reader(io.StringIO(exported(run, "-f", "result-rows", "--submitter", "A, Inc."))))
    assert tuple(rows[0]) == COLUMNS and len(COLUMNS) == 31
    assert rows[0][:5] == FIRST and rows[0][-2:] == LAST
    digits, formula = sorted((dict(zip(rows[0], row, strict=True)) for row in rows[1:]), key=lambda row: row["Model"])[
        ::-1
    ]
    assert digits["Organization"] == "A, Inc." and digits["Model"] == "digits"
    assert float(digits["Result"]) == pytest.approx(200) and digits["Units"] == "images/s"
    # K-MLI-6: total_accelerators is the product, whatever a name says.
    assert [digits[name] for name in ("number_of_nodes", "accelerators_per_node", "total_accelerators")] == [
        "2",
        "2",
        "4",
    ]
    assert digits["compliance"] == "unverified" and digits["has_power"] == "False"
    assert "Result not verified by MLCommons Association." in digits["notes"]
    assert (digits["MlperfModel"], digits["Scenario"]) == ("", "")
    assert formula["Model"] == "'=cmd()"  # a spreadsheet that opens it runs nothing


def test_a_description_has_every_key_and_leaves_empty_what_no_record_says(run: str) -> None:
    described = json.loads(exported(run, "-f", "system-description", "--submitter", "A"))
    assert tuple(described) == DESCRIPTION and len(DESCRIPTION) == 35
    assert described["submitter"] == "A" and described["number_of_nodes"] == 2
    assert described["host_memory_capacity"] == "256 GiB" and described["accelerator_model_name"] == "H100"
    assert described["cooling"] == "" and "unverified" in described["sw_notes"]


def test_a_submitter_is_refused_where_no_list_has_one(run: str) -> None:
    done = CliRunner().invoke(export, [run, "-f", "prometheus", "--submitter", "A"], standalone_mode=False)
    assert "--submitter is of --format result-rows and system-description" in str(done.exception)
