"""Plans executed on fake nodes, what is recorded of them, and what remains of a run."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.score import score
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.uncertainty import MeasuredLaunch, uncertainty_of
from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, NothingSelected, RecordError
from milabench.events.rundir import Run, open_run
from milabench.following.cancel_run import active_run
from milabench.history.results_store import run_identity
from milabench.plan.model import Plan, Step
from milabench.workflow.estimate import apply_budget, estimate_lines, estimate_plan, imprecise_benches, measuring_on
from milabench.workflow.measured_runs import require_measured, resolve_runs
from milabench.workflow.options import CollectingReporter, CommandContext, Extent, Session, SuiteOptions
from milabench.workflow.planning import PlannedRequest, describe_run, expand_requests, plan_request, request_of
from milabench.workflow.resume_run import attempts_made, remaining_work
from milabench.workflow.run_lookup import all_runs, find_step, resolve_run
from milabench.workflow.run_records import PlanExtension
from milabench.workflow.run_suite import finish_run, only_failed, passed_steps
from milabench.workflow.saved_options import load_options, packages_digest, plan_differences, replicates_of
from tests.changed_values import replace
from tests.recorded_run import Recorded, rates, record

from .conftest import Execute, ReadContext, StartedFakeNode, recorded


def plan_of(**commands: str) -> Plan:
    steps = (
        Step(id=name, bench=name, phase="run", argv=tuple(words.split()), needs_data=False, config={"name": name})
        for name, words in commands.items()
    )
    return Plan(phase="run", steps=tuple(steps), system={})


# ---------------------------------------------------------------------------------------------------------- execution


def test_every_step_has_an_outcome_and_a_failure_is_no_exception(
    context_of: ReadContext, execute: Execute, session: Session, reporter: CollectingReporter
) -> None:
    executed = execute(plan_of(good="true", bad="false"), context_of())
    assert recorded(executed).manifest["files"] == {"good": "good", "bad": "bad"}
    assert passed_steps(recorded(executed)) == {"good"}
    assert finish_run(executed, session) == STEPS_FAILED
    ended, following = reporter.texts("info")
    assert ended == f"run: 1 of 2 steps passed, 1 failed. Records: {executed.path}"
    assert following.startswith(f"next: `milabench report {executed.path.name}")
    assert json.loads((executed.path / "summary.json").read_text())["verdict"] == "failed"


class AgentAhead:
    """Stands for the agent of a session that was started ahead; `left` says how often it was told to leave."""

    run_id = "run-ahead"
    left = 0

    def leave(self) -> None:
        self.left += 1


@pytest.mark.parametrize("is_locked", [False, True])
def test_an_agent_that_was_started_ahead_is_waited_for_whether_its_run_gets_its_lock_or_not(
    context_of: ReadContext, execute: Execute, session: Session, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    agent, context = AgentAhead(), context_of()
    monkeypatch.setattr(session, "agent", agent)

    def refuse(*_: object) -> None:
        raise RecordError("the run cannot be locked")

    if is_locked:
        execute(plan_of(good="true"), context)
        assert session.agent is None
    else:
        monkeypatch.setattr("milabench.workflow.new_run.hold_run", refuse)
        with pytest.raises(RecordError):
            execute(plan_of(good="true"), context)
    session.close()
    assert agent.left == 1


def test_a_run_whose_steps_pass_ends_with_0(context_of: ReadContext, execute: Execute, session: Session) -> None:
    assert finish_run(execute(plan_of(good="true"), context_of()), session) == DONE


def test_a_plan_is_extended_by_what_was_recorded_and_the_manifest_holds_the_whole(
    context_of: ReadContext, execute: Execute, fake_nodes: dict[str, StartedFakeNode]
) -> None:
    longer = plan_of(first="true", second="true")
    extensions = [PlanExtension(plan=longer, manifest={"replicates": {"first": {"planned": 1}}}, messages=("more",))]

    def extend(path: Path) -> PlanExtension | None:
        assert passed_steps(open_run(path)) >= {"first"}
        return extensions.pop() if extensions else None

    run = recorded(execute(plan_of(first="true"), context_of(), extend=extend))
    assert fake_nodes["local"].started == ["first", "second"]
    assert [step["id"] for step in run.manifest["plan"]["steps"]] == ["first", "second"]
    assert replicates_of(run) == {"first": 1}
    assert passed_steps(run) == {"first", "second"}


def test_the_records_that_cannot_be_read_again_are_reported_and_make_the_run_fail(
    context_of: ReadContext, execute: Execute, session: Session, reporter: CollectingReporter
) -> None:
    executed = execute(plan_of(good="true"), context_of())
    shutil.rmtree(executed.path)
    assert finish_run(executed, session) == STEPS_FAILED
    assert len(reporter.texts("warning")) == 1


# ------------------------------------------------------------------------------------------------------------- resume


@pytest.fixture
def planned(session: Session, options: SuiteOptions) -> PlannedRequest:
    [request] = expand_requests(options, Extent(repeat=2, run_name="run", seed=1), session, stamp="NOW")
    return plan_request(request)


@pytest.fixture
def half(planned: PlannedRequest, execute: Execute) -> Run:
    """A run of the suite in which `a` has passed and `b` has failed."""
    from milabench.workflow.new_run import execute_plan

    words = {"a": ("true",), "b": ("false",)}
    steps = tuple(replace(step, argv=words[step.bench]) for step in planned.plan.steps)
    executed = execute_plan(replace(planned.plan, steps=steps), planned.request.context, describe_run(planned))
    # As a run of the plan itself: the fake node understands only its own commands.
    path = executed.path / "manifest.json"
    manifest = json.loads(path.read_text())
    real = json.loads(json.dumps(planned.plan.to_json()))
    path.write_text(json.dumps({**manifest, "plan": real, "plan_hash": planned.plan.hash}))
    return open_run(executed.path)


def test_what_has_passed_is_not_run_again(half: Run, session: Session) -> None:
    work = remaining_work(half, passed_steps(half), session)
    assert {step.bench for step in work.plan.steps} == {"b"}
    assert work.attempts == {step.id: 1 for step in work.plan.steps}
    assert work.differences == []
    assert all(step.stem for step in work.plan.steps)


def test_an_attempt_that_left_only_a_file_counts(half: Run) -> None:
    step = next(iter(set(half.files) - passed_steps(half)))
    (half.path / f"{half.stem(step, 2)}.data").write_bytes(b"")
    assert attempts_made(half, [step]) == {step: 2}


def test_a_suite_that_changed_is_refused_unless_forced(
    half: Run, session: Session, suite_file: Callable[..., Path]
) -> None:
    suite_file(b={"inherits": "_line", "command": ["false"]})
    with pytest.raises(RecordError, match=r"something changed since it was planned:\n +steps: 2 changed"):
        remaining_work(half, passed_steps(half), session)
    assert remaining_work(half, passed_steps(half), session, force=True).differences


def test_the_request_of_a_run_is_read_again(half: Run, session: Session, planned: PlannedRequest) -> None:
    request = request_of(half, session)
    assert plan_request(request).plan.hash == planned.plan.hash
    assert load_options(half)[1].repeat == 2


def test_only_what_failed_is_run_again(half: Run, planned: PlannedRequest, tmp_path: Path) -> None:
    part = only_failed(planned.plan, "", tmp_path / "base")
    assert {step.bench for step in part.steps} == {"b"}
    with pytest.raises(NothingSelected, match="none of its failed steps"):
        only_failed(plan_of(c="true"), half.name, tmp_path / "base")


@pytest.mark.parametrize("manifest", [{}, {"options": None}, {"options": {"run_name": "x"}}])
def test_a_run_without_saved_options_cannot_be_resumed(tmp_path: Path, manifest: dict[str, object]) -> None:
    run = record(tmp_path, Recorded(events=rates(5.0)), manifest=manifest)
    with pytest.raises(RecordError, match="Start a new"):
        load_options(run)


def test_what_changed_is_named_and_a_long_list_is_cut(tmp_path: Path) -> None:
    locks = {f"group{number}": "old" for number in range(20)}
    run = record(tmp_path, Recorded(events=rates(5.0)), manifest={"locks": locks, "plan": {"hash": plan_of().hash}})
    lines = plan_differences(run, plan_of(), {"locks": {**dict.fromkeys(locks, "new"), "other": "new"}})
    environments = [line for line in lines if line.startswith("environment")]
    assert "environment group0: changed" in environments
    assert len(lines) == 13
    assert lines[-1].startswith("and ")


def test_the_digest_of_packages_is_of_their_versions_not_of_their_order() -> None:
    one, other = packages_digest({"/venv": {"a": "1", "b": "2"}}), packages_digest({"/venv": {"b": "2", "a": "1"}})
    assert one == other
    assert one != packages_digest({"/venv": {"a": "1", "b": "3"}})


# ----------------------------------------------------------------------------------------- estimate, budget, replicates


def test_without_an_earlier_run_nothing_is_known_of_the_duration(planned: PlannedRequest) -> None:
    estimate = estimate_plan(planned)
    assert (estimate.unknown, estimate.runs) == (("a", "b"), ())
    assert sorted(estimate_lines(estimate)) == ["  a: 2 x unknown", "  b: 2 x unknown"]
    [line] = apply_budget(planned).lines
    known = "at least 16 s, and the starts of programs (profile quick: 4 x 4 s of warm-up and window)"
    assert line == f"estimate: not known before a run below this base has passed with a, b; {known}"


def test_a_command_that_is_measured_by_its_lines_has_no_window_to_estimate(
    session: Session, options: SuiteOptions, tmp_path: Path
) -> None:
    suite = tmp_path / "lines.yaml"
    suite.write_text("c: {command: [echo, speed 5], metrics: {speed: {pattern: 'speed (.*)', direction: higher}}}\n")
    lines = replace(options, config_file=suite, select=None)
    [request] = expand_requests(lines, Extent(run_name="run", seed=1), session, stamp="")
    lines = apply_budget(plan_request(request)).lines
    assert lines == [
        "estimate: not known before a run below this base has passed with c",
        "repeated until a precision of 5 %: at most 10 repeats, 30 of short ones",
    ]


@pytest.mark.parametrize(("keys", "most_s"), [({}, 20 * 6.0 + 10 * 89.0), ({"timed": True}, None)])
def test_the_time_that_is_told_is_a_limit_but_for_commands_which_may_be_other_ones_by_now(
    session: Session,
    options: SuiteOptions,
    suite_file: Callable[..., Path],
    keys: dict[str, bool],
    most_s: float | None,
) -> None:
    lines = {name: {"inherits": "_line", "resources": {"minutes": n}, **keys} for name, n in (("a", 0.1), ("b", 2))}
    suite_file(**lines)
    [request] = expand_requests(options, Extent(precision=0.05, run_name="run", seed=1), session, stamp="")
    target = apply_budget(plan_request(request)).planned.request.target
    assert target is not None and target.most_s == most_s


def test_a_budget_needs_an_earlier_run_or_a_pilot(session: Session, options: SuiteOptions) -> None:
    from milabench.errors import UsageError

    [request] = expand_requests(options, Extent(budget_s=5.0, run_name="run", seed=1), session, stamp="")
    with pytest.raises(UsageError, match="no earlier run tells how long"):
        apply_budget(plan_request(request))


def test_what_is_not_precise_is_planned_once_more_behind_what_was_run(
    session: Session, options: SuiteOptions, tmp_path: Path
) -> None:
    [request] = expand_requests(options, Extent(precision=0.05, run_name="run", seed=1), session, stamp="")
    values = {"a": (100.0, 100.1, 99.9), "b": (100.0, 110.0, 120.0)}
    steps = [
        Recorded(bench=name, repeat=k, events=rates(*[v] * 9))
        for name, own in values.items()
        for k, v in enumerate(own)
    ]
    aim = {"aim": {"precision": 0.05, "budget_s": None, "most_s": None}}
    extend = measuring_on(request)
    assert extend is not None
    extension = extend(record(tmp_path, *steps, manifest=aim).path)
    assert extension is not None
    assert {name: each["planned"] for name, each in extension.manifest["replicates"].items()} == {"a": 3, "b": 4}
    before = plan_request(request).plan.steps
    assert extension.plan.steps[: len(before)] == before
    assert [step.id for step in extension.plan.steps[len(before) :]] == ["b.0.R3"]
    assert extension.messages == ("measured again for a precision of 5 %: b",)
    failed = [*steps[:-1], Recorded(bench="b", repeat=2, outcome="failed")]
    assert extend(record(tmp_path, *failed, name="failed", manifest=aim).path) is None
    alike = [replace(step, events=rates(*[100.0] * 9)) for step in steps]
    assert extend(record(tmp_path, *alike, name="alike", manifest=aim).path) is None


@pytest.mark.parametrize(
    ("rates_of", "effects", "is_measured_on"),
    [
        ((100.0, 100.1, 99.9), {}, False),
        ((100.0, 110.0, 120.0), {}, True),
        ((100.0, 104.0, 108.0, 112.0, 116.0), {}, True),  # they may rise by chance
        ((100.0, 100.1, 99.9), {"gaps": 0.3}, False),  # it is alike in all launches
        ((100.0, 110.0, 120.0), {"gaps": 0.3}, False),
        ((100.0, 100.1, 99.9), {"others": 0.3}, True),  # others may be gone
    ],
)
def test_only_what_more_launches_can_make_precise_is_measured_on(
    rates_of: tuple[float, ...], effects: dict[str, float], is_measured_on: bool
) -> None:
    value = geometric_mean(rates_of)
    known = replace(
        uncertainty_of(value, [MeasuredLaunch(rate=math.log(rate), effects=effects) for rate in rates_of]), asked=0.05
    )
    bench = BenchSummary(bench="a", outcome="passed", counts={}, perf=value, uncertainty=known, doubts=("short",))
    found = {
        name: imprecise_benches(Summary(verdict="passed", benchmarks=(each,), score=score(())), 0.05)
        for name, each in {
            "passed": bench,
            "failed": replace(bench, outcome="failed"),
            "suspect": replace(bench, doubts=("foreign-process",)),
        }.items()
    }
    assert found == {"passed": {"a": known.expanded} if is_measured_on else {}, "failed": {}, "suspect": {}}


def test_a_counted_run_is_not_extended(session: Session, options: SuiteOptions) -> None:
    for extent in (Extent(run_name="run", seed=1), Extent(run_name="run", seed=1, budget_s=1.0), Extent(repeat=4)):
        [request] = expand_requests(options, replace(extent, run_name="run", seed=1), session, stamp="")
        assert measuring_on(request) is None


# ------------------------------------------------------------------------------------------------------- lookup, results


def test_a_run_is_found_by_name_and_its_state_is_told(tmp_path: Path) -> None:
    record(tmp_path, Recorded(events=rates(5.0)), name="done")
    cut = record(tmp_path, Recorded(outcome=None), name="cut", is_ended=False)
    assert resolve_run(tmp_path, "done").state == "passed"
    assert (resolve_run(tmp_path, cut.name).state, resolve_run(tmp_path, "cut").state_text) == ("cut off", "incomplete")
    assert sorted(handle.run.name.split(".")[0] for handle in all_runs(tmp_path)) == ["cut", "done"]
    with pytest.raises(NothingSelected, match="no active run"):
        active_run(tmp_path)


def test_a_step_is_found_by_id_and_by_its_benchmark(tmp_path: Path) -> None:
    run = record(tmp_path, *(Recorded(repeat=k, events=rates(5.0)) for k in range(2)), Recorded(bench="one"))
    assert find_step(run, "digits.D0") == ("digits.D0", [])
    assert find_step(run, "one") == ("one.D0", [])
    for last, other in (("digits.D0", "digits.D0.R1"), ("digits.D0.R1", "digits.D0")):
        os.utime(run.path / f"{run.stem(last, 1)}.data", (2e9, 2e9 + (last != "digits.D0")))
        assert find_step(run, "digits") == (last, [other])
    with pytest.raises(NothingSelected, match=r"unknown step 'x'. Known: "):
        find_step(run, "x")


def test_results_are_those_of_each_run_once_and_of_runs_only(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(events=rates(5.0)), name="a")
    assert [found.path for found in resolve_runs(tmp_path, ["a", str(run.path)])] == [run.path]
    assert [found.path for found in resolve_runs(tmp_path, [])] == [run.path]
    prepared = record(tmp_path, Recorded(), name="p", manifest={"phase": "prepare"})
    with pytest.raises(NothingSelected, match="is the record of prepare"):
        require_measured(prepared)


def test_a_run_keeps_its_identity_when_it_is_moved(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(events=rates(5.0)), name="a")
    identity = run_identity(run)
    moved = run.path.rename(tmp_path / "elsewhere")
    assert run_identity(open_run(moved)) == identity
    assert run_identity(record(tmp_path, Recorded(bench="b"), name="a")) != identity


def test_an_interrupted_run_says_how_to_continue(
    context_of: ReadContext, execute: Execute, session: Session, reporter: CollectingReporter
) -> None:
    context: CommandContext = context_of()
    executed = execute(plan_of(good="true"), context)
    interrupted = replace(executed, result=replace(executed.result, interrupted=True))
    assert finish_run(interrupted, session) == INTERRUPTED
