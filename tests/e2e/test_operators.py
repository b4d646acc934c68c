"""Operators as a benchmark of a suite: installed, run and reported like everything else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
SUITE = ("--config", "config/ops.yaml", "--select", "ops-add")


def test_operators_of_a_suite_are_metrics_with_a_headline(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    environ = {**kept, "MILABENCH_BASE": str(tmp_path), "MILABENCH_WAIT": "1"}

    def milabench(*argv: str) -> str:
        command = [sys.executable, "-m", "milabench", *argv]
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    milabench("install", *SUITE)
    milabench("prepare", *SUITE)
    milabench("run", "--profile", "quick", *SUITE)
    [bench] = json.loads(milabench("report", "--format", "json"))["benchmarks"]
    assert (bench["outcome"], bench["units"], bench["direction"]) == ("passed", "s", "lower")
    times = {
        (metric["part"], metric["params"]["mode"]): metric["value"]
        for metric in bench["metrics"]
        if metric["metric"] == "time"
    }
    assert set(times) == {(part, mode) for part in ("forward", "backward") for mode in ("hot", "cold")}
    forward = [value for (part, _), value in times.items() if part == "forward"]
    assert bench["perf"] == pytest.approx((forward[0] * forward[1]) ** 0.5)
