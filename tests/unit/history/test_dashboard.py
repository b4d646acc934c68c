"""The Grafana dashboards: each of their queries against a real store, and their structure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards import dashboard, panel_queries, variable_queries
from tests.recorded_run import SYSTEM, Recorded, rates, record

Milabench = Callable[..., Any]
DAY_MS = 86_400_000
MARCH_MS = 1_772_323_200_000  # 2026-03-01


def recorded(base: Path, host: str, day: int, level: float, **step: Any) -> str:
    system = {**SYSTEM, "nodes": [{**SYSTEM["nodes"][0], "hostname": host}]}
    steps = [Recorded(repeat=repeat, events=rates(level, level + repeat, level)) for repeat in range(3)]
    steps.append(Recorded(bench="it's", events=rates(1, 1, 1), **step))
    manifest = {"created": f"2026-03-{day:02d}T12:00:00+00:00", "system": system}
    return record(base, *steps, name=f"{host}-{day}", manifest=manifest).path.name


@pytest.fixture
def answers(milabench: Milabench, tmp_path: Path) -> Callable[..., dict[str, list[dict[str, Any]]]]:
    """Ask a store of three runs on two machines what the panels ask."""
    names = [
        recorded(tmp_path / "base", "n0", 1, 800),
        recorded(tmp_path / "base", "n0", 2, 900),
        recorded(tmp_path / "base", "n1", 3, 600, outcome="failed", reasons=("lost",)),
    ]
    assert milabench("db", "add", *names).code == 0

    def ask(start: int = 0, stop: int = 30, **values: list[str]) -> dict[str, list[dict[str, Any]]]:
        found = {}
        given = {"benchmark": ["digits", "it's"], "host": ["n0", "n1"], **values}
        for title, sql in panel_queries("sqlite", given, MARCH_MS + start * DAY_MS, MARCH_MS + stop * DAY_MS).items():
            said = milabench("db", "query", sql, "--json")
            assert said.code == 0, (title, said.err)
            found[title] = json.loads(said.out)
        return found

    return ask


def test_every_panel_answers(answers: Callable[..., Any]) -> None:
    found = answers()
    assert [(row["host"], row["benchmarks"], row["verdict"]) for row in found["Runs"]] == [
        ("n1", 2, "failed"),
        ("n0", 2, "passed"),
        ("n0", 2, "passed"),
    ]
    assert found["Runs"][0]["started"] == MARCH_MS + 2.5 * DAY_MS
    assert sum(row["value"] for row in found["Validity"]) == 6
    assert {row["metric"] for row in found["Validity"]} >= {"failed"}
    series = [(row["time"], row["metric"], row["perf"]) for row in found["$benchmark"] if "images/s" in row["metric"]]
    assert [time for time, _, _ in series] == sorted(time for time, _, _ in series)
    assert len([perf for _, metric, perf in series if metric.startswith("n0") and perf > 700]) == 2


def test_the_fleet_shows_the_newest_number_of_each_machine_beside_the_others(answers: Callable[..., Any]) -> None:
    fleet = [row for row in answers()["Fleet"] if row["benchmark"] == "digits"]
    assert [row["host"] for row in fleet] == ["n1", "n0"]
    slow, fast = fleet
    assert fast["perf"] == pytest.approx(900, rel=0.01)
    assert slow["ratio"] == pytest.approx(600 / 750, rel=0.01)
    assert fast["ratio"] + slow["ratio"] == pytest.approx(2)


def test_time_and_variables_restrict_every_panel(answers: Callable[..., Any]) -> None:
    assert {title: rows for title, rows in answers(start=10).items() if rows} == {}
    assert {title: rows for title, rows in answers(host=["nobody"]).items() if rows} == {}
    assert {row["host"] for row in answers(stop=2)["Runs"]} == {"n0"}
    assert {row["benchmark"] for row in answers(benchmark=["it's"])["Fleet"]} == {"it's"}


def test_every_variable_answers(milabench: Milabench, answers: Callable[..., Any]) -> None:
    found = {
        name: [*json.loads(milabench("db", "query", sql, "--json").out)]
        for name, sql in variable_queries("sqlite").items()
    }
    assert found == {
        "benchmark": [{"bench": "digits"}, {"bench": "it's"}],
        "host": [{"host": "n0"}, {"host": "n1"}],
    }


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_the_structure_is_that_of_a_dashboard(store: str) -> None:
    value = dashboard(store)
    variables = {variable["name"]: variable for variable in value["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    ids = [panel["id"] for panel in value["panels"]]
    assert len(set(ids)) == len(ids)
    cells: set[tuple[int, int]] = set()
    for panel in value["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & own, panel["title"]
        assert max(x for x, _ in own) < 24
        cells |= own
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": variables["datasource"]["query"], "uid": "${datasource}"}
        used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps([panel["title"], panel["targets"]])))
        assert used <= variables.keys()
    assert value["panels"][-1]["repeat"] in variables
