"""When steps wait for each other, and what watches them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from milabench.config.read import read_suite
from milabench.config.schema import BenchmarkConfig
from milabench.errors import ConfigError
from milabench.plan.context import Instruments, NodeBenchmark
from milabench.plan.step import barrier, monitor_command


@pytest.fixture
def bench(tmp_path: Path) -> BenchmarkConfig:
    (tmp_path / "suite.yaml").write_text("one: {command: 'true', plan: {method: per_gpu}}\n")
    suite = read_suite([tmp_path / "suite.yaml"], system=None, overrides=[], env={}, detected_arch="cpu")
    return suite.benchmarks["one"]


def with_method(bench: BenchmarkConfig, method: Any) -> BenchmarkConfig:
    return replace(bench, plan=replace(bench.plan, method=method))


def test_instances_side_by_side_wait_for_each_other(bench: BenchmarkConfig) -> None:
    assert barrier(replace(bench, max_duration=60), 2, {}) == {"barrier": True, "barrier_timeout_s": 30.0}
    assert barrier(with_method(bench, "njobs"), 2, {})["barrier"] is True


def test_one_alone_and_the_parts_of_one_job_do_not(bench: BenchmarkConfig) -> None:
    assert barrier(bench, 1, {}) == {}
    assert barrier(with_method(bench, "multigpu"), 2, {}) == {}


def test_the_longest_wait_is_ten_minutes_unless_the_system_says_so(bench: BenchmarkConfig) -> None:
    assert barrier(replace(bench, max_duration=None), 2, {})["barrier_timeout_s"] == 600.0
    assert barrier(replace(bench, max_duration=9000), 2, {})["barrier_timeout_s"] == 600.0
    assert barrier(bench, 2, {"barrier": {"timeout_s": 7}})["barrier_timeout_s"] == 7.0


def test_a_wait_that_is_no_number_is_an_error(bench: BenchmarkConfig) -> None:
    with pytest.raises(ConfigError, match=r"barrier\.timeout_s: expected a number of seconds, got 'ten'"):
        barrier(bench, 2, {"barrier": {"timeout_s": "ten"}})


def placed(venv: str, arch: str, *, instruments: Instruments | None = None, **options: object) -> NodeBenchmark:
    context = SimpleNamespace(
        facts=SimpleNamespace(arch=arch),
        system=SimpleNamespace(options=options),
        current_env=None,
        current_python=None,
        instruments=instruments,
    )
    return cast("NodeBenchmark", SimpleNamespace(venv=venv, context=context, node=SimpleNamespace(local=True)))


def test_the_monitor_runs_in_the_steps_environment() -> None:
    command = monitor_command(placed("/venv/torch", "cuda"))
    assert command == ("/venv/torch/bin/python", "-I", "-m", "benchmate.monitors", "--arch", "cuda", "--packages")


def test_a_command_without_an_environment_is_watched_from_the_sources_every_half_second() -> None:
    sources = Instruments(python="/usr/bin/python3", folder="/checkout/benchmate/src")
    command = monitor_command(placed("", "cuda", instruments=sources))
    assert command[:3] == ("/usr/bin/python3", "-I", "-c")
    assert command[4:] == ("/checkout/benchmate/src", "--arch", "cuda", "--host-period", "0.5")
    assert monitor_command(placed("/venv/torch", "cuda", instruments=sources))[0] == "/venv/torch/bin/python"


def test_the_system_may_simulate_devices_or_want_no_monitor() -> None:
    assert "/f.json" in monitor_command(placed("/v", "cpu", simulated_devices="/f.json"))
    assert monitor_command(placed("/v", "cpu", monitor=False)) == ()
    assert monitor_command(placed("", "cpu")) == ()
