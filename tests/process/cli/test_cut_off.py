"""A run whose files were cut off, as by a power cut, read and gone on with by command."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said
from tests.examples import thinned

from .written import once, runs, suite

PLACES = 20


@pytest.fixture
def places(milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path) -> list[Path]:
    """Copies of one run with a passed and a failed step, each with one file cut off somewhere."""
    assert milabench("run", *suite(tmp_path, shaky=once(tmp_path, "seen"), sound="echo fine")).code == 1
    (run,) = runs(environ["MILABENCH_BASE"])
    chance = random.Random(5)
    copies = []
    for number in range(PLACES):
        copy = tmp_path / f"cut{number}" / run.name
        shutil.copytree(run, copy)
        file = copy / chance.choice(
            sorted(path.name for path in run.iterdir() if path.is_file() and path.stat().st_size)
        )
        content = file.read_bytes()
        file.write_bytes(content[: chance.randrange(len(content))])
        copies.append(copy)
    return copies


@pytest.mark.slow
def test_a_run_cut_off_anywhere_is_reported_and_gone_on_with_or_refused_in_a_sentence(
    milabench: Callable[..., Said], places: list[Path]
) -> None:
    for number in thinned(range(PLACES), 3):
        copy = places[number]
        said = milabench("report", str(copy))
        assert said.code == 0, said.err
        assert "sound" in said.out
        if number % 2 == 0:
            resumed = milabench("resume", str(copy))
            if resumed.code == 0:
                assert "2 of 2 steps passed" in resumed.err
            else:
                assert (resumed.code, "Start a new run with `milabench run`" in resumed.err) == (6, True), resumed.err
