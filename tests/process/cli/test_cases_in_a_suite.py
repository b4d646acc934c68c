"""A program of registered cases as a benchmark of a suite: its cases are rows of the report, its failures the step's."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHFILE = """
    from milabench import Benchmark

    benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
"""
MAIN = """
    import benchmate.cases as benchmark

    @benchmark.register(name="sum/{n}", n=[1000, 100000])
    def bench_sum(n, state):
        state.items = n
        sum(range(n))

    @benchmark.register(name="broken")
    def broken():
        raise ValueError("no such thing")

    if __name__ == "__main__":
        benchmark.main()
"""


@pytest.fixture
def suite(tmp_path: Path) -> tuple[str, ...]:
    """A suite of the cases that pass, and of all."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, text in (("benchfile.py", BENCHFILE), ("main.py", MAIN)):
        (folder / name).write_text(textwrap.dedent(text))
    bench = {"definition": "mine", "install_group": "mine", "max_duration": 60, "weight": 1.0}
    arguments = {"-d": 0, "--isolation": "fork", "--benchmark_repetitions": 2}
    benches = {
        "profile": "quick",
        "sums": {**bench, "argv": {**arguments, "-f": "sum"}},
        "all": {**bench, "argv": arguments},
    }
    file = tmp_path / "suite.yaml"
    file.write_text(json.dumps(benches))  # JSON is YAML
    return ("--use-current-env", "--config", str(file))


def test_each_case_is_a_row_and_their_geometric_mean_the_number(
    milabench: Callable[..., Any], suite: tuple[str, ...]
) -> None:
    said = milabench("run", *suite, "--select", "sums")
    assert said.code == 0, said.out + said.err
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    times = {one["case"]: one["value"] for one in bench["metrics"] if one["metric"] == "wall_time"}
    assert list(times) == ["sum/1000", "sum/100000"]
    assert bench["perf"] == pytest.approx((times["sum/1000"] * times["sum/100000"]) ** 0.5)
    assert (bench["units"], bench["direction"]) == ("s", "lower")
    rates = {one["case"]: one["value"] for one in bench["metrics"] if one["metric"] == "items_per_second"}
    assert rates.keys() == times.keys()
    assert "wall_time sum/1000" in milabench("report", "--full").out


def test_a_case_that_fails_fails_the_step_and_is_named(milabench: Callable[..., Any], suite: tuple[str, ...]) -> None:
    assert milabench("run", *suite, "--select", "all").code == 1
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert bench["outcome"] == "failed"
    assert bench["failures"][0]["detail"] == "broken: failed (exit): run: ValueError: no such thing"
