"""Runs each benchmark's prepare.py once, in its environment, with the arguments of the run."""

from __future__ import annotations

from pathlib import Path

from milabench.devices.regular_file import open_regular
from milabench.errors import DONE, INTERRUPTED, EnvironmentFailed
from milabench.events.rundir import open_run
from milabench.execute.locks import hold_base
from milabench.execute.retry_policy import RetryPolicy
from milabench.plan.model import Plan
from milabench.plan.prepare import ALREADY
from milabench.workflow.context import CommandContext
from milabench.workflow.environments import environment_records
from milabench.workflow.execution import RunDescription, execute_plan
from milabench.workflow.preflight import pending_preparations, preparation_steps, require_installed
from milabench.workflow.remote_nodes import copy_folders, require_healthy
from milabench.workflow.suites_used import record_use

TAIL_LINES = 15
TAIL_BYTES = 64 * 1024


def prepare(context: CommandContext, *, force: bool = False) -> int:
    """Prepare what has not been prepared, or with `force` all; return the exit code.

    Raises EnvironmentFailed for preparations that fail, and Unreachable.
    """
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
    locks, packages = environment_records(context)
    description = RunDescription(name="prepare", locks=locks, packages=packages)
    # The agent makes the marker when the step passes, so that a control plane that is killed loses no preparation.
    markers = {preparation.step.id: preparation.marker for preparation in preparation_steps(context)}
    executed = execute_plan(plan, context, description, retry=RetryPolicy(wait=True, markers=markers))
    failures = [
        f"{step}: prepare failed: {outcome.failure}{log_tail(executed.path, step)}"
        for step, outcome in executed.result.outcomes.items()
        if outcome.name != "passed"
    ]
    if executed.result.interrupted:
        context.session.info("interrupted")
        return INTERRUPTED
    if failures:
        raise EnvironmentFailed("\nerror: ".join(failures))
    context.session.info(f"prepare: {len(plan.steps)} benchmarks prepared")
    return DONE


def log_tail(run: Path, step: str) -> str:
    """Return the end of a step's output, and where all of it is."""
    path = open_run(run).log(step)
    if path is None:
        return f" (no output; records in {run})"
    with open_regular(path) as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).decode("utf-8", "backslashreplace").splitlines()
    return "".join(f"\n  | {line}" for line in lines[-TAIL_LINES:]) + f"\n  (whole output: {path})"
