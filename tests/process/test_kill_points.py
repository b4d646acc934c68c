"""Whoever is struck, and whenever: `resume` brings a run to the accounting of one that nobody disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.kill_points import strike_of, struck


@pytest.mark.parametrize("seeds", [range(20), range(20, 40)], ids=["0-19", "20-39"])
def test_a_run_that_was_struck_and_resumed_comes_to_what_an_undisturbed_one_does(seeds: range, tmp_path: Path) -> None:
    assert struck([strike_of(seed) for seed in seeds], tmp_path) == {}
