"""Two hundred more of the strikes of tests/process/test_kill_points.py, which draws others for each commit in `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.kill_points import WATCHED, strike_of, strike_of_a_monitor, struck

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.mark.parametrize("first", range(1000, 1200, 20))
def test_a_run_that_was_struck_and_resumed_comes_to_what_an_undisturbed_one_does(first: int, tmp_path: Path) -> None:
    assert struck([strike_of(seed) for seed in range(first, first + 20)], tmp_path) == {}


@pytest.mark.parametrize("first", [1000, 1010])
def test_a_run_whose_real_monitor_was_struck_comes_to_what_an_undisturbed_one_does(first: int, tmp_path: Path) -> None:
    assert struck([strike_of_a_monitor(seed) for seed in range(first, first + 10)], tmp_path, WATCHED) == {}
