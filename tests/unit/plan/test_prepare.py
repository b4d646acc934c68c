from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.bench.api import Benchmark
from milabench.config.read import read_suite
from milabench.facts.model import Node, SystemFacts
from milabench.plan.context import NodeBenchmark, PlanContext, ResolvedBenchmark, benchmark_on, dirs_under
from milabench.plan.model import SkippedBench, Step
from milabench.plan.prepare import Preparation, marker_name, plan_prepare, prepare_digest, prepare_step
from milabench.plan.profile import PROFILES

FILES = {"prepare.py": b"print(1)"}
SUITE = "digits: {definition: digits, install_group: torch, argv: {--epochs: 3}, env: {A: '1'}, max_duration: 60}"


@pytest.fixture
def bench(tmp_path: Path) -> NodeBenchmark:
    (tmp_path / "suite.yaml").write_text(SUITE)
    suite = read_suite([tmp_path / "suite.yaml"], env={})
    facts = SystemFacts(arch="cpu", nodes=(Node(),))
    context = PlanContext(
        facts=facts, system=suite.system, dirs=dirs_under("/base", {}), profile=PROFILES["quick"], run_name="r"
    )
    resolved = ResolvedBenchmark(
        config=suite.benchmarks["digits"], folder="/suite/digits", declared=Benchmark(script="main.py")
    )
    return benchmark_on(facts.main, resolved, context)


@pytest.fixture
def made(bench: NodeBenchmark) -> Step:
    step = prepare_step(bench)
    assert step is not None
    return step


def named(step: Step, name: str) -> Step:
    return replace(step, id=name, bench=name, group=name)


def test_prepare_runs_in_the_environment_with_the_arguments_of_the_run(made: Step) -> None:
    assert made.argv == ("/base/venv/torch/bin/python", "/suite/digits/prepare.py", "--epochs", "3")
    assert (made.id, made.phase, made.needs_data, made.cwd) == ("digits", "prepare", False, "/base/data/digits")
    assert (made.env["A"], made.timeout_s) == ("1", 60)


def test_modules_that_it_shares_are_found_by_prepare_also_in_a_container(bench: NodeBenchmark, tmp_path: Path) -> None:
    sharing = replace(bench, modules="/suite/_environments/torch")
    step = prepare_step(sharing)
    assert step is not None and step.env["PYTHONPATH"] == "/suite/_environments/torch"
    (tmp_path / "system.yaml").write_text("system: {container: {engine: docker, image: i}}")
    system = read_suite([tmp_path / "suite.yaml", tmp_path / "system.yaml"], env={}).system
    inside = prepare_step(replace(sharing, context=replace(bench.context, system=system)))
    assert inside is not None and any(
        word.startswith("--volume=/suite/_environments/torch:") for word in inside.argv
    ), inside.argv


def test_on_one_of_several_nodes_it_is_named_after_the_node(bench: NodeBenchmark) -> None:
    step = prepare_step(bench, rank=1)
    assert step is not None and (step.id, step.stem) == ("digits.node1", "digits.node1")


def test_a_benchmark_without_prepare_has_no_step(bench: NodeBenchmark) -> None:
    assert prepare_step(replace(bench, declared=Benchmark(script="main.py", prepare=None))) is None


def test_everything_that_shapes_the_data_changes_the_digest(made: Step) -> None:
    digests = {
        prepare_digest(made, FILES),
        prepare_digest(made, {"prepare.py": b"print(2)"}),
        prepare_digest(replace(made, argv=(*made.argv, "--more")), FILES),
        prepare_digest(replace(made, env={"A": "2"}), FILES),
        prepare_digest(made, FILES, venv="v"),
        prepare_digest(made, FILES, source="trl-1.16.0"),
        prepare_digest(swept(made, tokenizer="/data/words"), FILES),
        prepare_digest(swept(made, tokenizer="/data/more-words"), FILES),
        prepare_digest(swept(made, trace="/data/words"), FILES),
    }
    assert len(digests) == 9


def test_how_a_benchmark_of_milabench_1_3_is_measured_and_judged_does_not_prepare_it_again(made: Step) -> None:
    def of(**settings: object) -> str:
        return prepare_digest(replace(made, env={**made.env, "MILABENCH_CONFIG": json.dumps(settings)}), FILES)

    known = {"argv": {"--n": 1}, "weight": 1.0, "voir": {"options": {"stop": 60}}, "system": {"arch": "cpu"}}
    other = {"weight": 2.0, "voir": {"options": {"stop": 5}}, "tags": ["a"], "max_duration": 9, "validation": {}}
    assert of(**known) == of(**{**known, **other, "system": {"arch": "cuda"}})
    assert of(**known) != of(**{**known, "argv": {"--n": 2}})
    assert prepare_digest(replace(made, env={"MILABENCH_CONFIG": "no JSON"}), FILES)


def test_the_load_of_a_sweep_does_not_change_the_digest(made: Step) -> None:
    assert prepare_digest(swept(made, trace="", rate=[1.0]), FILES) == prepare_digest(made, FILES)


def swept(made: Step, **sweep: object) -> Step:
    return replace(made, config={**made.config, "serve": sweep})


def test_limits_and_values_known_only_at_the_start_do_not_change_the_digest(made: Step) -> None:
    decided = {name: value for name, value in made.env.items() if not value.startswith("@")}
    assert decided != made.env
    assert prepare_digest(replace(made, timeout_s=1.0, env=decided), FILES) == prepare_digest(made, FILES)


def test_what_has_a_marker_is_skipped_and_named(made: Step) -> None:
    done = Preparation(step=named(made, "a"), marker=marker_name("a", "1" * 64))
    todo = Preparation(step=named(made, "b"), marker=marker_name("b", "2" * 64))
    disabled = SkippedBench(bench="c", why="disabled")
    plan = plan_prepare([done, todo], markers={done.key, ("local", "b-other")}, skipped=[disabled])
    assert [each.bench for each in plan.steps] == ["b"]
    assert plan.skipped == (disabled, SkippedBench(bench="a", why="already prepared"))
    assert [each.bench for each in plan_prepare([done, todo], markers={done.key}, force=True).steps] == ["a", "b"]


def test_a_marker_is_a_file_name_whatever_the_benchmark_is_called() -> None:
    assert marker_name("a b", "0123456789abcdef0123") == "a b/.prepared/0123456789abcdef"
