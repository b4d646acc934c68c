"""More of the strikes of tests/process/test_interruptions.py, which `make test` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.interruptions import interrupted, interrupted_in_the_loop

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.mark.parametrize("first", range(1000, 1200, 20))
def test_a_command_that_is_interrupted_at_any_instant_ends_in_order(first: int, tmp_path: Path) -> None:
    assert interrupted(range(first, first + 20), tmp_path) == {}


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_signal_while_an_event_loop_is_made_or_closed_ends_in_order(seed: int, tmp_path: Path) -> None:
    assert interrupted_in_the_loop(seed, 40, tmp_path) == {}
