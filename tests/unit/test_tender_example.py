"""The tender that ships: its simulated runs are those that tests/tender_example.py writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tender_example import FOLDER, write_runs


@pytest.mark.slow
def test_the_shipped_runs_are_the_simulated_ones(tmp_path: Path) -> None:
    write_runs(tmp_path)
    written, shipped = files(tmp_path), files(FOLDER)
    assert {name for name in shipped if name.startswith("runs/")} == {name for name in written if name != "pdu.csv"}
    # Reports name the version that wrote them.
    assert [name for name in written if "nodes-" not in name and written[name] != shipped[name]] == []


def files(folder: Path) -> dict[str, bytes]:
    """Return the files by name, without the summaries that whatever reads a run keeps beside it."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "summary.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
