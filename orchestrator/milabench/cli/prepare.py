"""`milabench prepare`: each benchmark's prepare.py, once, in its environment, with the arguments of the run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import SuiteOptions, display_option, suite_options
from milabench.errors import INTERRUPTED, EnvironmentFailed
from milabench.workflow.context import read_context

if TYPE_CHECKING:
    from milabench.plan.model import Plan
    from milabench.workflow.context import CommandContext

TAIL_LINES = 15


@click.command("prepare", help="Make or fetch the data and models that the selected benchmarks need.")
@suite_options(environment=True, reach=True)
@click.option("--force", is_flag=True, help="Prepare anew what was prepared already.")
@display_option
def command(options: SuiteOptions, force: bool, display: str) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.cli.install import print_note
    from milabench.execute.base_lock import hold_base
    from milabench.plan.prepare import ALREADY
    from milabench.workflow.preflight import require_installed
    from milabench.workflow.preparations import pending_preparations
    from milabench.workflow.remote_nodes import copy_folders, require_healthy

    inputs = read_context(options)
    require_healthy(inputs, options)
    require_installed(inputs, options)
    copy_folders(inputs, options)
    plan = pending_preparations(inputs, options, force=force, give=True)
    done = sum(skip.why == ALREADY for skip in plan.skipped)
    if not plan.steps:
        print(f"prepare: nothing to do, {done} benchmarks are prepared", file=sys.stderr)
        return 0
    with hold_base(Path(inputs.where.dirs.base), "prepare", say=print_note):
        return prepare(plan, inputs, display=display)


def prepare(plan: Plan, inputs: CommandContext, *, display: str) -> int:
    """Carry the plan out; leave a marker for each preparation that passed. Raises EnvironmentFailed for those that did not."""
    from milabench.execute.api import Passed
    from milabench.workflow.execution import RetryPolicy, RunDescription, execute_plan, failure_reason
    from milabench.workflow.preflight import environment_records
    from milabench.workflow.preparations import preparation_steps

    locks, packages = environment_records(inputs)
    recording = RunDescription(name="prepare", locks=locks, packages=packages)
    markers = {each.step.id: each.marker for each in preparation_steps(inputs)}
    effort = RetryPolicy(wait=True, marks=markers)
    carried = execute_plan(plan, inputs, recording, display=display, effort=effort)
    failures = []
    for step in plan.steps:
        outcome = carried.done.outcomes[step.id]
        if not isinstance(outcome, Passed):
            failures.append(f"{step.id}: prepare failed: {failure_reason(outcome)}{log_tail(carried.path, step.id)}")
    if carried.done.interrupted:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    if failures:
        raise EnvironmentFailed("\nerror: ".join(failures))
    print(f"prepare: {len(plan.steps)} benchmarks prepared", file=sys.stderr)
    return 0


def log_tail(run: Path, step: str) -> str:
    """The end of what a step said, and where all of it is."""
    from milabench.events.rundir import open_run

    path = open_run(run).log(step)
    if path is None:
        return f" (it said nothing; records in {run})"
    lines = path.read_text(errors="backslashreplace").splitlines()
    return "".join(f"\n  | {line}" for line in lines[-TAIL_LINES:]) + f"\n  (all of it: {path})"
