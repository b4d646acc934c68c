"""The screens of the main commands: the verdict first, few lines, no wide table, and one command that leads on.

The golden screens are read in review like code; UPDATE_GOLDEN=1 writes them anew.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.screens import ABOUT_A_SUITE, NEXT_TO_SYSTEMS, screen, shown, write_systems

pytestmark = pytest.mark.turns(1)  # part of every `make test`

MOST_LINES = 40
WIDTH = 120
LIST_WIDTH = 100
VERDICTS = {
    "report": "result   58 of 60 steps passed, 2 failed; 4 of 6 numbers valid",
    "compare": "new is 1.067 times as fast as old",
    "compare-tender": "A A-1000 has the highest score of the admissible offers",
    "accept": "FAIL: ",
    "offer-compare": "A A-1000 has the highest score of the admissible offers",
    "budget": "12,000,000 EUR over 5 years pays for ",
    "outliers": "2 outliers on 2 devices",
    "status": "new: failed; 60/60 steps done",
    "doctor": "a run is ",
    "plan-run": "run plan ",
}


@pytest.fixture(scope="module")
def screens(systems: Path) -> dict[str, str]:
    return {name: shown(systems, name) for name in (*NEXT_TO_SYSTEMS, *ABOUT_A_SUITE)}


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("systems")
    write_systems(folder)
    return folder


@pytest.mark.parametrize("name", NEXT_TO_SYSTEMS)
def test_a_screen_is_the_golden_one(screens: dict[str, str], name: str, root: Path) -> None:
    golden, text = root / "tests" / "golden" / "screens" / f"{name}.txt", screens[name]
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("name", [*NEXT_TO_SYSTEMS, *ABOUT_A_SUITE])
def test_a_screen_is_short_and_narrow(screens: dict[str, str], name: str) -> None:
    lines = screens[name].splitlines()
    # A command is copied, and stays on one line.
    prose = [
        line
        for line in lines
        if not line.startswith("next: ") and "/bin/python " not in line and "    rerun " not in line
    ]
    print(f"{name:16} {len(lines):3} lines {max(map(len, prose)):4} wide")
    assert max(map(len, prose)) <= (LIST_WIDTH if name == "list" else WIDTH)
    assert name == "list" or len(lines) <= MOST_LINES
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize(("name", "begin"), VERDICTS.items())
def test_a_screen_begins_with_the_verdict_and_ends_with_the_next_command(
    screens: dict[str, str], name: str, begin: str
) -> None:
    lines = screens[name].rstrip("\n").splitlines()
    assert lines[0].startswith(begin)
    assert [line.startswith("next: `milabench ") for line in lines if line.startswith("next")] == [True]
    assert lines[-1].startswith("next: ")
    words = shlex.split(lines[-1].split("`")[1])
    assert "--base" in words or "BASE" in lines[-1]


@pytest.mark.parametrize("name", NEXT_TO_SYSTEMS)
def test_a_screen_says_each_warning_once(screens: dict[str, str], name: str) -> None:
    said = [line for line in screens[name].splitlines() if line.startswith("  ") and not line.startswith("    ")]
    texts = [line.partition(": ")[2] for line in said]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    "words",
    [
        ("accept", "looks", "new", "--criteria", "criteria.yaml", "--reference", "reference"),
        ("accept", "recheck", "new", "--against", "old"),
        ("accept", "plan", "old", "--criteria", "criteria.yaml", "--reference", "reference"),
    ],
    ids=" ".join,
)
def test_no_cell_of_another_acceptance_is_shortened(systems: Path, words: tuple[str, ...]) -> None:
    text = screen(systems, *words, "--base", ".")
    assert "…" not in text and " by\n" not in text
    assert all(len(line) <= WIDTH for line in text.splitlines() if not line.startswith("next: "))


@pytest.mark.parametrize("name", ["compare", "compare-tender", "accept", "offer-compare", "budget", "report"])
def test_everything_else_is_behind_full(systems: Path, screens: dict[str, str], name: str) -> None:
    full = screen(systems, *NEXT_TO_SYSTEMS[name], "--base", ".", "--full")
    assert len(full.splitlines()) > len(screens[name].splitlines())
