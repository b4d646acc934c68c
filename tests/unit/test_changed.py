"""Which unit tests `make fast` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changed import main, units_of

ROOT = Path(__file__).resolve().parents[2]


def test_a_changed_file_has_the_tests_of_its_room() -> None:
    names = [
        "orchestrator/milabench/report/columns.py",
        "orchestrator/milabench/report/text.py",
        "orchestrator/milabench/shown.py",
        "tests/unit/plan/test_run.py",
        "tests/unit/test_prose.py",
        "tests/unit/conftest.py",
        "tests/process/test_agent.py",
        "docs/cli.md",
    ]
    assert units_of(names) == [
        "tests/unit/report",
        "tests/unit/test_shown.py",
        "tests/unit/plan",
        "tests/unit/test_prose.py",
    ]


def test_every_room_with_a_name_of_its_own_has_its_tests() -> None:
    rooms = [path.name for path in (ROOT / "orchestrator" / "milabench").iterdir() if (path / "__init__.py").is_file()]
    without = [room for room in rooms if not units_of([f"orchestrator/milabench/{room}/x.py"])]
    assert len(without) < len(rooms) / 4, without


def test_a_room_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert capsys.readouterr().err == "error: no unit tests of nothing\n"
    assert main(["report"]) == 0
    assert capsys.readouterr().out.split() == ["tests/unit/test_layers.py", "tests/unit/report"]
