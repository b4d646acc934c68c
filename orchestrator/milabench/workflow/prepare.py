"""Runs each benchmark's prepare.py once, in its environment, with the arguments of the run."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

from milabench.devices.regular_file import open_regular
from milabench.errors import DONE, INTERRUPTED, EnvironmentFailed
from milabench.events.attempts import attempts
from milabench.events.rundir import open_run, recent_runs
from milabench.execute.interrupts import InterruptRequested
from milabench.execute.locks import hold_base
from milabench.execute.retry_policy import RetryPolicy
from milabench.plan.model import Plan
from milabench.plan.prepare import ALREADY
from milabench.workflow.context import CommandContext, on_this_machine
from milabench.workflow.environments import environment_records
from milabench.workflow.execution import ExecutedPlan, RunDescription, execute_plan
from milabench.workflow.preflight import command_line, pending_preparations, preparation_steps, require_installed
from milabench.workflow.remote_nodes import copy_folders, require_healthy
from milabench.workflow.suites_used import record_use

LIMIT_S = 60.0  # what `milabench run` gives a benchmark that is not prepared
LOOKED_AT = 20  # records of earlier preparations
TAIL_LINES = 15
TAIL_BYTES = 64 * 1024


def prepare(context: CommandContext, *, force: bool = False) -> int:
    """Prepare what has not been prepared, or with `force` all; return the exit code.

    Raises EnvironmentFailed for preparations that fail, and Unreachable.
    """
    context = on_this_machine(context)
    require_healthy(context)
    require_installed(context)
    record_use(context)
    copy_folders(context)
    plan = pending_preparations(context, force=force, upload=True)
    if plan.steps:
        with hold_base(Path(context.dirs.base), "prepare", say=context.session.note) as has_waited:
            if has_waited:  # for a command that may have prepared the same
                plan = pending_preparations(context, force=force)
            if plan.steps:
                return execute_preparations(plan, context)
    done = sum(skip.why == ALREADY for skip in plan.skipped)
    context.session.info(f"prepare: nothing to do, {done} benchmarks are prepared")
    return DONE


def execute_preparations(plan: Plan, context: CommandContext) -> int:
    """Execute the plan; leave a marker for each preparation that passes. Raises EnvironmentFailed for those that fail."""
    executed = _execute(plan, context, RetryPolicy(wait=True))
    if executed.result.interrupted:
        context.session.info("interrupted")
        return INTERRUPTED
    _require_passed(executed)
    context.session.info(f"prepare: {len(plan.steps)} benchmarks prepared")
    return DONE


def prepare_quickly(pending: Plan, context: CommandContext) -> None:
    """Prepare what a run lacks as `milabench prepare` does, but give each benchmark `LIMIT_S` only.

    Raises EnvironmentFailed, with the command to give, for what takes longer or took longer before; for what fails;
    InterruptRequested; Unreachable.
    """
    context = on_this_machine(context)
    command = command_line("prepare", context.options)
    durations = last_durations(Path(context.dirs.base))
    slow = [step.id for step in pending.steps if durations.get(step.id, 0.0) >= LIMIT_S]
    if slow:
        raise EnvironmentFailed(
            f"not prepared: {', '.join(slow)}, which took {LIMIT_S:g} s or more the last time; run `{command}`"
        )
    benches = tuple(dict.fromkeys(step.bench for step in pending.steps))
    context.session.info(f"run: preparing {', '.join(benches)} first, {LIMIT_S:g} s at most for each")
    copy_folders(context)
    with hold_base(Path(context.dirs.base), "prepare", say=context.session.note):
        pending = pending_preparations(context, upload=True)  # again: we may have waited for who prepared the same
        steps = tuple(
            replace(step, timeout_s=min(step.timeout_s or LIMIT_S, LIMIT_S))
            for step in pending.steps
            if step.bench in benches
        )
        if not steps:
            return
        executed = _execute(replace(pending, steps=steps), context, RetryPolicy(wait=True, max_failures=1))
    if executed.result.interrupted:
        raise InterruptRequested
    _require_passed(executed, f"; where it needs more than {LIMIT_S:g} s, run `{command}`")


def last_durations(base: Path) -> dict[str, float]:
    """Return how long each prepare step below a base took, in seconds, when it was last tried, by the latest records."""
    durations: dict[str, float] = {}
    for run in islice(recent_runs(base, "prepare"), LOOKED_AT):
        for step, tried in attempts(run.journal).items():
            began, ended = tried[-1].began, tried[-1].ended
            if began is not None and ended is not None:
                durations.setdefault(step, ended - began)
    return durations


def _execute(plan: Plan, context: CommandContext, retry: RetryPolicy) -> ExecutedPlan:
    locks, packages = environment_records(context)
    description = RunDescription(name="prepare", locks=locks, packages=packages)
    # The agent makes the marker when the step passes, so that a control plane that is killed loses no preparation.
    markers = {preparation.step.id: preparation.marker for preparation in preparation_steps(context)}
    return execute_plan(plan, context, description, retry=replace(retry, markers=markers))


def _require_passed(executed: ExecutedPlan, hint: str = "") -> None:
    """Raise EnvironmentFailed for the steps that failed; `hint` is added where one took too long."""
    outcomes = executed.result.outcomes
    # What was not started because of a failure says nothing of its own.
    wrong = {step: outcome for step, outcome in outcomes.items() if outcome.name == "failed"} or {
        step: outcome for step, outcome in outcomes.items() if outcome.name != "passed"
    }
    failures = [
        f"{step}: prepare failed: {outcome.failure}{hint if outcome.why == 'timeout' else ''}{log_tail(executed.path, step)}"
        for step, outcome in wrong.items()
    ]
    if failures:
        raise EnvironmentFailed("\nerror: ".join(failures))


def log_tail(run: Path, step: str) -> str:
    """Return the end of a step's output, and where all of it is."""
    path = open_run(run).log(step)
    if path is None:
        return f" (no output; records in {run})"
    with open_regular(path) as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).decode("utf-8", "backslashreplace").splitlines()
    return "".join(f"\n  | {line}" for line in lines[-TAIL_LINES:]) + f"\n  (whole output: {path})"
