"""`milabench plan`, and the printing of plans as text, as JSON, or as the difference from another plan's JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench import seams
from milabench.cli.options import (
    is_on_command_line,
    job_options,
    json_option,
    other_command,
    plan_options,
    rare_option,
    suite_options,
    terminal_session,
)
from milabench.errors import ConfigError, UsageError, with_remedy
from milabench.shown import wrapped
from milabench.workflow.files import read_file
from milabench.workflow.options import Extent, Session, Submission, SuiteOptions

if TYPE_CHECKING:
    from milabench.schedulers.scheduler import JobBatch
    from milabench.workflow.estimate import BudgetedPlan
    from milabench.workflow.planning import Request


@click.command("plan")
@click.argument("phase", type=click.Choice(["install", "prepare", "run"]))
@suite_options(environment=True, nodes="queries")
@plan_options
@job_options
@click.option("--run-name", default="run", help="Name of the run.")
@rare_option("--seed", type=int, default=0, show_default=True, help="Seed of the order in which benchmarks run.")
@rare_option("--frozen", is_flag=True, help="With install: accept locks whose requirements have changed since.")
@click.option("--full", is_flag=True, help="Show every repeat, with the folder and the variables of each step.")
@json_option
@click.option(
    "--diff",
    "other",
    metavar="OTHER_PLAN.json",
    type=click.Path(path_type=Path),
    help="Show the differences from this plan, or from the plan in a run's manifest.json.",
)
def command(
    options: SuiteOptions,
    extent: Extent,
    submit: Submission | None,
    phase: str,
    frozen: bool,
    full: bool,
    as_json: bool,
    other: Path | None,
) -> None:
    """Show the plan of install, prepare or run."""
    from milabench.plan.text import plan_text
    from milabench.workflow.context import read_context

    session = terminal_session()
    if phase == "run":
        print_requests(options, extent, session, submit=submit, as_json=as_json, other=other, is_full=full)
        return
    if submit is not None:
        raise click.UsageError(f"--submit and --distribute go with `plan run`. Leave them out of `plan {phase}`")
    if extent.ab is not None:
        raise click.UsageError(f"--ab goes with `plan run`. Give each suite to `plan {phase}` with --config")
    context = read_context(options, session, extent)
    if phase == "prepare":
        from milabench.workflow.preflight import pending_preparations

        preparations = pending_preparations(context)
        output = PlanOutput(value=preparations.to_json, text=lambda: plan_text(preparations, is_full=full))
    else:
        from milabench.workflow.environments import decide_install
        from milabench.workflow.install import environments_of, install_text, resources_text
        from milabench.workflow.preflight import require_current_locks

        if not frozen:
            require_current_locks(context)
        install = decide_install(context)
        needs = environments_of(context, install)
        output = PlanOutput(
            value=lambda: {**install.to_json(), "resources": needs.to_json()},
            text=lambda: f"{install_text(install)}{resources_text(needs, install.venvs)}\n",
        )
    print_plans([output], as_json=as_json, other=other)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutput:
    """Makes the value and the text of a plan. `name` and `options` belong to its run if there are several."""

    value: Callable[[], Mapping[str, Any]]
    text: Callable[[], str]
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def print_requests(
    options: SuiteOptions,
    extent: Extent,
    session: Session,
    *,
    as_json: bool,
    submit: Submission | None = None,
    other: Path | None = None,
    is_full: bool = False,
) -> None:
    """Print the steps that would run, their estimated duration, and the batch scripts of the jobs. See `print_plans`."""
    from milabench.workflow.estimate import apply_budget, warn_of_memory
    from milabench.workflow.planning import expand_requests, plan_request, require_submittable

    outputs = []
    if submit is not None:
        options = seams.handler("run --submit")(options, session)
    requests = expand_requests(options, extent, session, stamp="{time}", is_submitted=submit is not None)
    if submit is not None:
        require_submittable(requests)
    for request in requests:
        budgeted = apply_budget(plan_request(request))
        warn_of_memory(budgeted.planned)
        has_scripts = submit is not None or request.context.allocation is not None
        scripts = seams.handler("scripts of jobs")(budgeted.planned, submit) if has_scripts else ()
        outputs.append(_plan_output(request, budgeted, scripts, is_full=is_full))
    print_plans(outputs, as_json=as_json, other=other)
    if not (as_json or is_full) and other is None:
        run = other_command("run", "--dry-run" if is_on_command_line("dry_run") else "run")
        click.echo(f"\nnext: `{run}`: runs it. `--full` shows the folder and the variables of each step")


def _plan_output(request: Request, budgeted: BudgetedPlan, jobs: Sequence[JobBatch], *, is_full: bool) -> PlanOutput:
    from milabench.plan.resources import sum_of_data
    from milabench.plan.text import plan_text
    from milabench.workflow.estimate import configs_of, estimate_lines

    plan, estimate = budgeted.planned.plan, budgeted.estimate

    def value() -> dict[str, Any]:
        data = sum_of_data(configs_of(request).values())
        described = {**plan.to_json(), "estimate": estimate.to_json(), "data": data.to_json()}
        return {**described, "jobs": [job.to_json() for job in jobs]} if jobs else described

    def text() -> str:
        about = [part for line in budgeted.lines for part in wrapped(line)]
        shown = plan_text(plan, is_full=is_full, estimate=[*about, *estimate_lines(estimate, is_full=is_full)])
        return "\n".join([shown.rstrip("\n"), *(f"\n{job.text}".removesuffix("\n") for job in jobs), ""])

    return PlanOutput(value=value, text=text, name=request.name, options=request.values)


def print_plans(plans: Sequence[PlanOutput], *, as_json: bool, other: Path | None = None) -> None:
    """Print the plan, or its difference from `other`. The plans of a multirun in sequence, or below `runs`.

    Raises UsageError for a difference from several plans, ConfigError for an `other` that is not a plan.
    """
    is_multirun = any(plan.options for plan in plans)
    if other is not None:
        from milabench.plan.diff import diff_text, plan_diff

        if is_multirun:
            raise UsageError(f"--diff compares a single plan. The multirun of the system file makes {len(plans)}")
        # Through JSON, as the other plan came: tuples become lists.
        diff = plan_diff(read_plan(other), json.loads(json.dumps(plans[0].value())))
        click.echo(json.dumps(diff.to_json(), indent=1) + "\n" if as_json else diff_text(diff), nl=False)
    elif not is_multirun:
        click.echo(json.dumps(plans[0].value(), indent=1) + "\n" if as_json else plans[0].text(), nl=False)
    elif as_json:
        runs = [{"name": plan.name, "options": dict(plan.options), "plan": plan.value()} for plan in plans]
        click.echo(json.dumps({"schema": 1, "runs": runs}, indent=1))
    else:
        for number, plan in enumerate(plans):
            values = ", ".join(f"{key}={value}" for key, value in plan.options.items())
            click.echo(f"{chr(10) if number else ''}run {plan.name}: {values}\n{plan.text()}", nl=False)


def read_plan(path: Path) -> Mapping[str, object]:
    """Read a plan from the output of `milabench plan --json`, or from a run's manifest. Raises ConfigError."""
    from milabench.plan.diff import is_plan

    hint = "give a file that `milabench plan --json` made, or a run's manifest.json"
    try:
        value = json.loads(read_file(path, hint=hint))
    except (ValueError, RecursionError):
        raise ConfigError(with_remedy(f"{path}: is not JSON", hint)) from None
    if isinstance(value, dict) and isinstance(value.get("plan"), dict):
        value = value["plan"]
    if not is_plan(value):
        raise ConfigError(with_remedy(f"{path}: is not a plan", hint))
    plan: Mapping[str, Any] = value
    return plan
