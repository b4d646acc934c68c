"""The tender that ships: its simulated runs are those that tests/tender_example.py writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from milabench.cli import compare
from tests.tender_example import FOLDER, write_runs


@pytest.mark.slow
def test_the_shipped_runs_are_the_simulated_ones(tmp_path: Path) -> None:
    write_runs(tmp_path)
    written, shipped = files(tmp_path), files(FOLDER)
    assert {name for name in shipped if name.startswith("runs/")} == {name for name in written if name != "pdu.csv"}
    # Reports name the version that wrote them.
    assert [name for name in written if "nodes-" not in name and written[name] != shipped[name]] == []


def test_of_the_shipped_offers_one_is_admissible_one_is_not_and_of_one_it_is_not_shown() -> None:
    """As docs/procurement.md says, and by its budget: below all of it, within its interval, above."""
    names = [str(FOLDER / f"{name}.yaml") for name in ("vendor-a", "vendor-b", "vendor-b-large")]
    words = [*names, "--tender", str(FOLDER / "procurement.yaml"), "--json"]
    done = CliRunner().invoke(compare.command, words, standalone_mode=False, catch_exceptions=False)
    assert done.return_value == 1
    a, b, large = json.loads(done.stdout)["tender"]["systems"]
    assert [each["admissible"] for each in (a, b, large)] == [True, None, False]
    assert [budget_of(each)["verdict"] for each in (a, b, large)] == ["PASS", "INCONCLUSIVE", "FAIL"]
    most = budget_of(a)["most"]["value"]
    assert budget_of(a)["offered"]["ci95"][1] < most < budget_of(large)["offered"]["ci95"][0]
    assert budget_of(b)["offered"]["ci95"][0] < most < budget_of(b)["offered"]["ci95"][1]
    assert large["score"]["value"] > a["score"]["value"] > b["score"]["value"]


def budget_of(system: dict[str, Any]) -> Any:
    return next(limit for limit in system["limits"] if limit["limit"] == "budget")


def files(folder: Path) -> dict[str, bytes]:
    """Return the files by name, without the summaries that whatever reads a run keeps beside it."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "summary.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
