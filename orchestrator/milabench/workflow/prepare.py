"""Runs each benchmark's prepare.py once, in its environment, with the arguments of the run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from milabench.devices.regular_file import open_regular
from milabench.errors import EnvironmentFailed
from milabench.events.atomic_write import replace_file
from milabench.events.attempts import attempts
from milabench.events.rundir import open_run
from milabench.events.runs_folder import recent_runs
from milabench.execute.interrupts import InterruptRequested
from milabench.execute.locks import hold_base
from milabench.execute.retry_policy import RetryPolicy
from milabench.plan.model import Plan
from milabench.plan.prepare import ALREADY_PREPARED, Preparation, data_lock, data_mark
from milabench.shown import counted
from milabench.workflow.context import on_this_machine
from milabench.workflow.environments import environment_records
from milabench.workflow.gated import gated_benches, token_environment, token_place, why_refused
from milabench.workflow.new_run import execute_plan
from milabench.workflow.options import CommandContext
from milabench.workflow.preflight import command_line, pending_preparations, preparation_steps, require_installed
from milabench.workflow.remote_nodes import copy_folders, require_healthy
from milabench.workflow.run_records import RunDescription
from milabench.workflow.suites_used import record_use

LIMIT_S = 60.0  # what `milabench run` gives a benchmark that is not prepared
LOOKED_AT = 20  # records of earlier preparations
TAIL_LINES = 15
TAIL_BYTES = 64 * 1024


def prepare(context: CommandContext, *, force: bool = False) -> None:
    """Prepare unprepared benchmarks, or with `force` all.

    Raises EnvironmentFailed for preparations that fail, InterruptRequested and Unreachable.
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
                execute_preparations(plan, context)
                return
    done = sum(skip.why == ALREADY_PREPARED for skip in plan.skipped)
    context.session.info(f"prepare: nothing to do, prepared: {counted(done, 'benchmark')}")


def execute_preparations(plan: Plan, context: CommandContext) -> None:
    """Execute the plan. Leave a marker for each preparation that passes.

    Raises EnvironmentFailed for those that fail, and for gated data without a token. The others are done.
    """
    plan, failures = _without_refused(plan, context)
    if plan.steps:
        failures += _execute(plan, context, RetryPolicy(wait=True))
    if failures:
        raise EnvironmentFailed("\nerror: ".join(failures))
    context.session.info(f"prepare: {counted(len(plan.steps), 'benchmark')} prepared")


def _without_refused(plan: Plan, context: CommandContext) -> tuple[Plan, list[str]]:
    """Return the plan without steps that lack their token, and why. Steps that need a token get the path of its file."""
    gated = gated_benches(bench.config for bench in context.benches)
    wanted = [step for step in plan.steps if step.bench in gated]
    if not wanted:
        return plan, []
    if not token_place(os.environ):
        kept = tuple(step for step in plan.steps if step.bench not in gated)
        benches = dict.fromkeys(step.bench for step in wanted)
        return replace(plan, steps=kept), [why_refused(bench, gated[bench]) for bench in benches]
    own, here = token_environment(os.environ), {node.name for node in context.nodes if node.local}
    steps = tuple(
        replace(step, env={**own, **step.env}) if step.bench in gated and step.node in here else step
        for step in plan.steps
    )
    return replace(plan, steps=steps), []


def prepare_quickly(pending: Plan, context: CommandContext) -> None:
    """Prepare the missing data of a run as `milabench prepare` does, but give each benchmark `LIMIT_S` only.

    Raises EnvironmentFailed, with the command to give, for preparations that take longer, took longer before, or fail.
    Also raises InterruptRequested and Unreachable.
    """
    context = on_this_machine(context)
    command = command_line("prepare", context.options)
    durations = last_durations(Path(context.dirs.base))
    slow = [step.id for step in pending.steps if durations.get(step.id, 0.0) >= LIMIT_S]
    if slow:
        raise EnvironmentFailed(
            f"not prepared: {', '.join(slow)}, which took {LIMIT_S:g} s or more the last time. Run `{command}`"
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
        plan, refused = _without_refused(replace(pending, steps=steps), context)
        if refused:  # the run cannot begin: nothing is fetched for it
            raise EnvironmentFailed("\nerror: ".join(refused))
        hint = f". Where it needs more than {LIMIT_S:g} s, run `{command}`"
        failures = _execute(plan, context, RetryPolicy(wait=True, max_failures=1), hint)
    if failures:
        raise EnvironmentFailed("\nerror: ".join(failures))


def last_durations(base: Path) -> dict[str, float]:
    """Return how long each prepare step below a base took, in seconds, when it was last tried, by the latest records."""
    durations: dict[str, float] = {}
    for run in islice(recent_runs(base, "prepare"), LOOKED_AT):
        for step, tried in attempts(run.journal).items():
            began, ended = tried[-1].began, tried[-1].ended
            if began is not None and ended is not None:
                durations.setdefault(step, ended - began)
    return durations


def _execute(plan: Plan, context: CommandContext, retry: RetryPolicy, hint: str = "") -> list[str]:
    """Execute preparations. Return a line for each that failed, with the end of its output.

    `hint` is added where a step took too long. Raises InterruptRequested.
    """
    preparations = preparation_steps(context)
    _mark_new_data(plan, context, preparations)
    locks, packages = environment_records(context)
    description = RunDescription(name="prepare", locks=locks, packages=packages)
    # The agent makes the marker when the step passes, so that a control plane that is killed loses no preparation.
    markers = {preparation.step.id: preparation.marker for preparation in preparations}
    executed = execute_plan(plan, context, description, retry=replace(retry, markers=markers))
    if executed.result.interrupted:
        raise InterruptRequested
    outcomes = executed.result.outcomes
    # What was not started because of a failure says nothing of its own.
    wrong = {step: outcome for step, outcome in outcomes.items() if outcome.name == "failed"} or {
        step: outcome for step, outcome in outcomes.items() if outcome.name != "passed"
    }
    return [
        f"{step}: prepare failed: {outcome.failure}{hint if outcome.why == 'timeout' else ''}{log_tail(executed.path, step)}"
        for step, outcome in wrong.items()
    ]


def _mark_new_data(plan: Plan, context: CommandContext, preparations: Sequence[Preparation]) -> None:
    """Mark the folders of data that are not there yet as ours, before they are made. Any other stays its owner's."""
    data, here = Path(context.dirs.data), {node.name for node in context.nodes if node.local}
    digests = {preparation.step.id: preparation.portable for preparation in preparations}
    for step in plan.steps:
        mark = data_mark(data, step.bench)
        with contextlib.suppress(OSError):  # without its mark it is kept
            if step.node in here and not os.path.lexists(data / step.bench):
                mark.parent.mkdir(parents=True, exist_ok=True)
                data_lock(data, step.bench).touch()
                replace_file(mark, digests.get(step.id, "").encode())


def log_tail(run: Path, step: str) -> str:
    """Return the end of a step's output, and the path of the whole output."""
    path = open_run(run).log(step)
    if path is None:
        return f" (no output, records in {run})"
    with open_regular(path) as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).decode("utf-8", "backslashreplace").splitlines()
    return "".join(f"\n  | {line}" for line in lines[-TAIL_LINES:]) + f"\n  (whole output: {path})"
