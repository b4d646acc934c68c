"""Whoever is struck, and whenever: `resume` brings a run to the accounting of one that nobody disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import drawn
from tests.process.kill_points import WATCHED, strike_of, strike_of_a_monitor, struck

pytestmark = pytest.mark.turns(1)  # part of every `make test`


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [drawn(range(first, first + 20)) for first in (0, 20)], ids=str)
def test_a_run_that_was_struck_and_resumed_comes_to_what_an_undisturbed_one_does(seeds: range, tmp_path: Path) -> None:
    assert struck([strike_of(seed) for seed in seeds], tmp_path) == {}


@pytest.mark.slow
def test_a_run_whose_real_monitor_was_struck_comes_to_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    assert struck([strike_of_a_monitor(seed) for seed in drawn(range(4))], tmp_path, WATCHED) == {}
