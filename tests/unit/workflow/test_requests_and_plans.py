"""From options to requests and plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from milabench.analysis.intervals import LEAST_LAUNCHES
from milabench.analysis.replicates import PrecisionTarget
from milabench.bench.api import Benchmark, Git
from milabench.errors import ConfigError, NothingSelected, UsageError
from milabench.workflow import environments
from milabench.workflow.context import settings_overrides
from milabench.workflow.options import CollectingReporter, CommandContext, Extent, Session, SuiteOptions
from milabench.workflow.planning import (
    LEAST_PAIRS,
    Request,
    describe_run,
    expand_requests,
    plan_request,
    plan_single_suite,
)
from milabench.workflow.preflight import command_line, missing_environments, require_ready

from .conftest import ReadContext

Expand = Callable[..., tuple[Request, ...]]


@pytest.fixture
def expand(session: Session, options: SuiteOptions) -> Expand:
    def requests(
        suite: SuiteOptions = options, is_part: bool = False, is_submitted: bool = False, **extent: Any
    ) -> tuple[Request, ...]:
        own = Extent(**extent, run_name="run", seed=1)
        return expand_requests(suite, own, session, stamp="NOW", is_part=is_part, is_submitted=is_submitted)

    return requests


def test_one_suite_is_one_request_with_its_replicates(expand: Expand) -> None:
    [request] = expand(repeat=3)
    assert (request.name, request.is_ab, request.target) == ("run", False, None)
    planned = plan_request(request)
    assert sorted(step.id for step in planned.plan.steps) == [f"{b}.0.R{k}" for b in "ab" for k in range(3)]
    assert planned.bundles == planned.plan.groups()


def test_programs_are_looked_for_on_the_path_of_the_benchmark(
    context_of: ReadContext, suite_file: Callable[..., Path], options: SuiteOptions, tmp_path: Path
) -> None:
    for name in ("own/hpl", "base/venv/e/bin/bundled"):
        program = tmp_path / name
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (tmp_path / "x").mkdir()
    line = "from milabench import Benchmark\nbenchmark = Benchmark(script='main.py', voirfile=None, prepare=None)\n"
    (tmp_path / "x" / "benchfile.py").write_text(line)
    own, alone = {"PATH": f"{tmp_path}/own:@path"}, {"PATH": "{milabench_base}/../own"}
    benches = {
        "found": {"env": own, "requires_programs": ["sh", "hpl"]},
        "elsewhere": {"requires_programs": "hpl"},
        "alone": {"env": alone, "requires_programs": ["hpl", "sh"]},
        "bundled": {"definition": "x", "install_group": "e", "requires_programs": "bundled"},
    }
    path = suite_file("programs.yaml", **{name: {"inherits": "_line", **keys} for name, keys in benches.items()})
    path.write_text(path.read_text().replace('"install_group": "lines", ', ""))
    context = context_of(replace(options, config_file=path, use_current_env=False, select=",".join(benches)))
    assert context.plan_context.missing_programs == {"elsewhere": "hpl", "alone": "sh"}


def test_a_precision_starts_with_three_launches(expand: Expand) -> None:
    [request] = expand(precision=0.02, budget_s=60.0)
    assert request.target == PrecisionTarget(precision=0.02, budget_s=60.0)
    assert len(plan_request(request).plan.steps) == 2 * LEAST_LAUNCHES


@pytest.mark.parametrize(("profile", "precision", "launches"), [("default", 0.05, 3), ("rigorous", 0.02, 5)])
def test_a_profile_has_a_precision_unless_the_repeats_are_given_or_nothing_can_be_decided_between_launches(
    expand: Expand, profile: str, precision: float, launches: int
) -> None:
    [request] = expand(profile=profile)
    assert request.target == PrecisionTarget(precision=precision)
    for same in (request, *expand(profile=profile, is_submitted=True), *expand(profile=profile, is_part=True)):
        assert len(plan_request(same).plan.steps) == 2 * launches
        assert (same.target is None) == (same is not request)
    [given] = expand(profile=profile, repeat=4)
    assert (given.target, len(plan_request(given).plan.steps)) == (None, 2 * 4)


def test_a_suite_says_its_precision_and_a_first_look_needs_none(
    expand: Expand, options: SuiteOptions, suite_file: Callable[..., Path]
) -> None:
    precise = replace(options, config_file=suite_file("precise.yaml", precision="3 %"))
    assert expand(precise, profile="default")[0].target == PrecisionTarget(precision=0.03)
    assert expand(precise, profile="default", precision=0.1)[0].target == PrecisionTarget(precision=0.1)
    assert expand(precise, profile="quick")[0].target is None
    wrong = replace(options, config_file=suite_file("wrong.yaml", precision="3 images"))
    with pytest.raises(ConfigError, match=r"precision: expected a share such as '3 %' or 0\.03"):
        expand(wrong)


def test_an_ab_run_has_five_pairs_unless_it_is_to_be_precise(expand: Expand, suite_file: Callable[..., Path]) -> None:
    for profile, precision in (("default", None), ("rigorous", 0.02)):
        [request] = expand(ab=(suite_file(profile=profile), suite_file("other.yaml", profile=profile)))
        assert (request.target and request.target.precision) == precision
        assert request.context.plan_context.repeats == 5


@pytest.mark.parametrize(
    ("extent", "is_part", "hint"),
    [
        ({"precision": 0.1, "repeat": 3}, False, "Leave out --repeat"),
        ({"precision": 0.1}, True, "Leave out --precision"),
        ({"budget_s": 1.0}, True, "Leave out --precision and --budget"),
        ({"ab": (Path("a.yaml"), Path("b.yaml"))}, True, "Leave out --ab"),
    ],
)
def test_options_that_contradict_one_another_are_refused(
    expand: Expand, extent: dict[str, Any], is_part: bool, hint: str
) -> None:
    with pytest.raises(UsageError, match=hint):
        expand(is_part=is_part, **extent)


def test_a_multirun_is_a_request_for_each_combination_and_shares_the_budget(
    expand: Expand, options: SuiteOptions, tmp_path: Path
) -> None:
    system = tmp_path / "system.yaml"
    system.write_text(
        json.dumps(
            {
                "multirun": {
                    "runs": [{"name": "{run_name}.{a.max_duration}.{time}", "matrix": {"a.max_duration": [1, 2]}}]
                }
            }
        )
    )
    requests = expand(replace(options, system_file=system), budget_s=10.0)
    assert [request.values for request in requests] == [{"a.max_duration": 1}, {"a.max_duration": 2}]
    assert all(request.target == PrecisionTarget(precision=None, budget_s=5.0) for request in requests)
    assert [request.context.suite.benchmarks["a"].max_duration for request in requests] == [1, 2]


def test_a_multirun_over_sizes_measures_each_of_them(expand: Expand, options: SuiteOptions, tmp_path: Path) -> None:
    (tmp_path / "sized.yaml").write_text("a: {command: echo, sizes: {tiny: {weight: 1}, device: {weight: 2}}}\n")
    system = tmp_path / "system.yaml"
    matrix = {"size": ["tiny", "device"]}
    system.write_text(json.dumps({"multirun": {"runs": [{"name": "{run_name}.{size}", "matrix": matrix}]}}))
    sized = replace(options, config_file=tmp_path / "sized.yaml", system_file=system)
    benches = [request.context.suite.benchmarks["a"] for request in expand(sized)]
    assert [(bench.size, bench.weight) for bench in benches] == [("tiny", 1), ("device", 2)]
    with pytest.raises(UsageError, match=r"chooses the size \(tiny\). Leave out --size device"):
        expand(replace(sized, size="device"))


def test_two_suites_are_measured_in_pairs(expand: Expand, suite_file: Callable[..., Path]) -> None:
    files = suite_file(), suite_file("other.yaml", a={"inherits": "_line", "command": ["false"]})
    [request] = expand(ab=files)
    planned = plan_request(request)
    assert planned.pairs == {"a": False, "b": True}
    assert len(planned.plan.steps) == 2 * 2 * LEAST_PAIRS
    assert {len(bundle) for bundle in planned.bundles} == {2}
    assert describe_run(planned).manifest["options"]["ab"] == [str(file) for file in files]


def test_two_suites_of_different_profiles_are_refused(expand: Expand, suite_file: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="Choose it with --profile"):
        expand(ab=(suite_file(), suite_file("other.yaml", profile="rigorous")))


def test_a_warning_on_both_sides_is_reported_once(
    expand: Expand, suite_file: Callable[..., Path], session: Session, reporter: CollectingReporter
) -> None:
    session.warn("twice")
    session.warn("twice")
    assert reporter.texts("warning") == ["twice"]


def test_a_plan_without_steps_names_every_reason(context_of: ReadContext, suite_file: Callable[..., Path]) -> None:
    impossible = {"inherits": "_line", "requires_capabilities": ["len(nodes) > 1"]}
    file = suite_file("impossible.yaml", a=impossible, b=impossible)
    context = context_of(SuiteOptions(config_file=file, use_current_env=True))
    with pytest.raises(NothingSelected, match=r": a, b: requires len\(nodes\) > 1$"):
        plan_single_suite(context)


def test_of_many_reasons_and_benchmarks_a_few_are_named(
    context_of: ReadContext, suite_file: Callable[..., Path]
) -> None:
    one = {"inherits": "_line", "requires_capabilities": ["len(nodes) > 1"]}
    many = {f"m{number}": one for number in range(8)}
    long = {"inherits": "_line", "requires_capabilities": [" and ".join(["len(nodes) > 2"] * 20)]}
    others = {f"o{number}": {**one, "requires_capabilities": [f"len(nodes) > {number + 3}"]} for number in range(5)}
    file = suite_file("impossible.yaml", a=one, b=long, **many, **others)
    with pytest.raises(NothingSelected) as caught:
        plan_single_suite(context_of(SuiteOptions(config_file=file, use_current_env=True)))
    said = str(caught.value)
    assert "a, m0, m1, m2, m3 and 4 more: requires len(nodes) > 1; " in said
    assert said.endswith("; 2 more reasons")
    assert len(said) < 800


def test_an_unknown_profile_is_refused_with_the_known_ones(context_of: ReadContext) -> None:
    with pytest.raises(ConfigError, match=r"unknown profile 'slow'. Known: "):
        context_of(profile="slow")


def test_what_a_manifest_keeps_of_a_target_can_be_computed_again(expand: Expand) -> None:
    [request] = expand(precision=0.02, budget_s=60.0)
    description = describe_run(plan_request(request), validations=["loss"])
    assert description.manifest["aim"] == {"precision": 0.02, "budget_s": 60.0, "most_s": None}
    assert description.manifest["validations"] == ["loss"]
    assert {key: description.manifest["options"][key] for key in ("repeat", "precision", "budget")} == {
        "repeat": None,
        "precision": "2%",
        "budget": "60s",
    }
    assert sorted(description.suite) == ["a", "b"]


def test_commands_need_nothing_to_be_installed_or_prepared(context_of: ReadContext) -> None:
    context = context_of()
    require_ready(context, plan_single_suite(context))


def test_the_command_that_installs_the_instruments_can_be_pasted(
    context_of: ReadContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "BENCHMATE", Path("/my tools/benchmate"))
    monkeypatch.setattr("milabench.workflow.preflight.find_spec", lambda _: None)
    [missing] = missing_environments(context_of())
    assert missing.endswith("(pip install '/my tools/benchmate')")


def test_the_command_to_give_is_for_the_same_suite() -> None:
    options = SuiteOptions(config_file=Path("my suite.yaml"), select="a or b", overrides=("a.b=1",), max_benchmarks=5)
    assert command_line("install", options) == (
        "milabench install --config 'my suite.yaml' --max-benchmarks 5 --select 'a or b' --override a.b=1"
    )


def test_variables_stand_for_options_of_the_system() -> None:
    variables = {"MILABENCH_SIZER_MULT": "8", "MILABENCH_SIZER_SAVE": "x", "MILABENCH_CPU_N": "4", "HOME": "/"}
    assert settings_overrides(variables) == {
        "MILABENCH_SIZER_MULT": "system.options.sizer.mult=8",
        "MILABENCH_CPU_N": "system.options.cpu.n=4",
    }


def test_a_program_that_several_benchmarks_share_is_fetched_once() -> None:
    first, second = (Git(f"https://example.org/{name}.git", "a" * 40) for name in "xy")
    declared = (Benchmark(source=source, script="main.py") for source in (first, second, first))
    benches = [
        SimpleNamespace(declared=value, config=SimpleNamespace(name="x")) for value in (*declared, Benchmark(), None)
    ]
    context = SimpleNamespace(benches=benches, plan_context=SimpleNamespace(unavailable={}))
    assert environments.sources(cast("CommandContext", context)) == (first, second)
