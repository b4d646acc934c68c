from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from milabench.bench.api import Benchmark
from milabench.plan.model import SkippedBench, Step
from milabench.plan.prepare import Preparation, marker_name, plan_prepare, prepare_digest, prepare_step

FILES = {"prepare.py": b"print(1)"}


def step(bench: str = "digits") -> Step:
    made = prepare_step(
        bench,
        Benchmark(script="main.py"),
        PurePosixPath("/suite/digits"),
        argv=("--epochs", "3"),
        env={"A": "1", "MILABENCH_SINK": "@sink"},
        venv="/base/venv/torch",
        cwd="/base/data/digits",
    )
    assert made is not None
    return made


def test_prepare_runs_in_the_environment_with_the_arguments_of_the_run() -> None:
    made = step()
    assert made.argv == ("/base/venv/torch/bin/python", "/suite/digits/prepare.py", "--epochs", "3")
    assert (made.id, made.phase, made.needs_data) == ("digits", "prepare", False)


def test_a_benchmark_without_prepare_has_no_step() -> None:
    benchmark = Benchmark(script="main.py", prepare=None)
    assert prepare_step("a", benchmark, PurePosixPath("/a"), argv=(), env={}, venv="/v", cwd="/d") is None


def test_everything_that_shapes_the_data_changes_the_digest() -> None:
    made = step()
    digests = {
        prepare_digest(made, FILES),
        prepare_digest(made, {"prepare.py": b"print(2)"}),
        prepare_digest(replace(made, argv=(*made.argv, "--more")), FILES),
        prepare_digest(replace(made, env={"A": "2"}), FILES),
        prepare_digest(made, FILES, venv="v"),
        prepare_digest(made, FILES, source="trl-1.16.0"),
    }
    assert len(digests) == 6


def test_limits_and_values_known_only_at_the_start_do_not_change_the_digest() -> None:
    made = step()
    assert prepare_digest(replace(made, timeout_s=1.0, env={"A": "1"}), FILES) == prepare_digest(made, FILES)


def test_what_has_a_marker_is_skipped_and_named() -> None:
    done = Preparation(step=step("a"), marker=marker_name("a", "1" * 64))
    todo = Preparation(step=step("b"), marker=marker_name("b", "2" * 64))
    disabled = SkippedBench(bench="c", why="disabled")
    plan = plan_prepare([done, todo], markers={done.key, ("local", "b-other")}, skipped=[disabled])
    assert [each.bench for each in plan.steps] == ["b"]
    assert plan.skipped == (disabled, SkippedBench(bench="a", why="already prepared"))
    assert [each.bench for each in plan_prepare([done, todo], markers={done.key}, force=True).steps] == ["a", "b"]


def test_a_marker_is_a_file_name_whatever_the_benchmark_is_called() -> None:
    assert marker_name("a b", "0123456789abcdef0123") == "a b/.prepared/0123456789abcdef"
