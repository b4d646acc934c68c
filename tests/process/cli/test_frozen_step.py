"""A step whose process is stopped by SIGSTOP for 3 s within its window, under the real agent."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.commands import Said

from .conftest import HERE


@pytest.mark.slow
def test_a_launch_that_stood_still_within_its_window_is_not_valid(milabench: Callable[..., Said]) -> None:
    assert milabench("prepare", *HERE, "--select", "frozen").code == 0
    said = milabench("run", *HERE, "--select", "frozen")
    assert said.code == 0, said.err
    assert "run: 1 of 1 step passed, 0 valid (quick: a first look)" in said.err
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert bench["uncertainty"]["expanded"] is None  # of one launch nothing is known
    (rate,) = [metric for metric in bench["metrics"] if metric["metric"] == "rate"]
    assert rate["stall"]["seconds"] == pytest.approx(3.0, rel=0.2)
    # About 150 steps of two items before it stood still, and hardly any after it; the 3 s are in the number.
    assert rate["value"] < 0.7 * 2 / rate["latency"]["p50"]
