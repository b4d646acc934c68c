"""`milabench run`: plan, check that everything is in place, carry out, tell."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import (
    Extent,
    SuiteOptions,
    detach_option,
    display_option,
    effort_options,
    is_on_command_line,
    plan_options,
    suite_options,
    validations_option,
)
from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, NothingSelected, RecordError

if TYPE_CHECKING:
    from milabench.events.rundir import Run
    from milabench.execute.detach import DetachHandover
    from milabench.plan.model import Plan
    from milabench.workflow.estimate import BudgetedPlan
    from milabench.workflow.execution import ExecutedPlan
    from milabench.workflow.request import Request

CHANGE_THE_EXIT_CODE = ("failed", "cancelled", "missing")


@click.command("run", help="Run and measure the selected benchmarks.")
@suite_options(environment=True, reach=True)
@plan_options
@click.option(
    "--run-name", default="run", envvar="MILABENCH_RUN_NAME", help="Name of the run; the time is added to it."
)
@click.option("--seed", type=int, help="Seed of the order in which benchmarks run. Default: the time.")
@click.option(
    "--failed",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Run only what did not pass in the latest run, or in this one.",
)
@effort_options
@validations_option
@click.option("--dry-run", is_flag=True, help="Show the plan; the same as `milabench plan run`.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: JSON instead of text.")
@click.option(
    "--sizer-save",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="MILABENCH_SIZER_SAVE",
    help="Add the batch sizes that were run, with their memory and rate, to this file of observations.",
)
@detach_option
@display_option
def command(
    options: SuiteOptions,
    extent: Extent,
    run_name: str,
    seed: int | None,
    failed: str | None,
    wait: bool,
    max_retries: int,
    maxfail: int | None,
    validations: str | None,
    dry_run: bool,
    as_json: bool,
    sizer_save: Path | None,
    detach: bool,
    display: str,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.workflow.request import expand_requests

    if not run_name:
        raise click.UsageError("--run-name is empty; give a name, or leave it out")
    now = int(time.time())
    if dry_run:
        if detach and is_on_command_line("detach"):
            raise click.UsageError(
                "--detach has nothing to leave behind with --dry-run, which ends at once; give one of them"
            )
        options = replace(options, ask_nodes=False)
        asked = expand_requests(options, extent, run_name=run_name, stamp="{time}", seed=seed or 0)
        show_requests(asked, as_json=as_json)
        return DONE
    if as_json:
        raise click.UsageError("--json goes with --dry-run; `milabench report --json` tells what was measured")
    if sizer_save is not None and extent.ab is not None:
        raise click.UsageError("--sizer-save keeps what one suite was observed to need; leave out --ab")
    from milabench.facts.probe import this_machine

    this_machine()  # its answer takes as long as importing what follows
    from milabench.checks.registry import parse_checks
    from milabench.workflow.adaptive_replicates import after_pilot
    from milabench.workflow.execution import RetryPolicy, execute_plan
    from milabench.workflow.planning import describe_run

    checks = parse_checks(validations or "all")
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
    asked = expand_requests(
        options,
        extent,
        run_name=run_name,
        stamp=stamp,
        seed=seed if seed is not None else now,
        is_part=failed is not None,
    )
    todo = [prepare_request(request, failed) for request in asked]
    effort = RetryPolicy(wait=wait, max_retries=max_retries, max_failures=maxfail)

    def one_after_the_other(tether: DetachHandover | None = None) -> int:
        code = DONE
        for each in todo:
            for line in each.said:
                print(line, file=sys.stderr)
            decision = each.decision
            carried = execute_plan(
                decision.plan,
                decision.request.inputs,
                describe_run(decision, stamp=stamp, validations=checks, replicates=each.replicates),
                display=display,
                effort=effort,
                more=after_pilot(decision.request),
                tether=tether,
            )
            if sizer_save is not None:
                from milabench.workflow.scaling_files import observed_batch_sizes, save_observations

                save_observations(sizer_save, observed_batch_sizes(carried.path, decision.plan))
            ended = finish_run(carried)
            if ended == INTERRUPTED:
                return INTERRUPTED
            code = max(code, ended)
        return code

    if detach:
        from milabench.workflow.detach import run_detached

        return run_detached("run", one_after_the_other)
    return one_after_the_other()


def prepare_request(request: Request, failed: str | None) -> BudgetedPlan:
    """What will be carried out, all or what failed in a run, within its budget.

    Raises EnvironmentFailed unless everything that it needs is there, UsageError when the budget does not reach.
    """
    from milabench.workflow.estimate import apply_budget
    from milabench.workflow.planning import plan_request, require_request_ready

    decision = plan_request(request)
    if failed is not None:
        part = only_failed(decision.plan, failed, Path(request.inputs.where.dirs.base))
        decision = replace(decision, plan=part, bundles=part.groups())
    require_request_ready(request, decision.plan)
    return apply_budget(decision)


def show_requests(asked: Sequence[Request], *, as_json: bool, other: Path | None = None) -> None:
    """Print what would be run, and what that would take; see `show_plans`."""
    from milabench.cli.plan_output import PlanOutput, show_plans
    from milabench.plan.show import plan_text
    from milabench.workflow.estimate import apply_budget, estimate_lines
    from milabench.workflow.planning import plan_request

    shown = []
    for request in asked:
        within = apply_budget(plan_request(request))
        plan = within.decision.plan
        value = {**plan.to_json(), "estimate": within.estimate.to_json()}
        text = "\n".join([plan_text(plan), *within.said, *estimate_lines(within.estimate), ""])
        shown.append(PlanOutput(value=value, text=text, name=request.name, options=request.chosen))
    show_plans(shown, as_json=as_json, several=any(each.chosen for each in asked), other=other)


def finish_run(carried: ExecutedPlan) -> int:
    """Write the summary of a run, say how its steps ended, all attempts considered, and give the exit code."""
    counts = write_summary(carried.path)
    if counts:
        print_counts(counts, carried.path)
    if carried.done.is_cut:
        print("run: interrupted; `milabench resume` goes on with it", file=sys.stderr)
    if carried.done.interrupted:
        return INTERRUPTED
    is_whole = bool(counts) and not any(counts[outcome] for outcome in CHANGE_THE_EXIT_CODE)
    return DONE if is_whole and carried.done.all_passed else STEPS_FAILED


def print_counts(counts: Mapping[str, int], path: Path) -> None:
    """Say how many steps of a run ended how, and where its records are."""
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    print(f"run: {told}; records in {path}; `milabench report` shows them", file=sys.stderr)


def only_failed(plan: Plan, name: str, base: Path) -> Plan:
    """The part of a plan that did not pass in a run of this name, or in the latest one. Raises NothingSelected."""
    from milabench.events.rundir import find_run, latest_run
    from milabench.plan.subset import restricted_plan

    run = find_run(base, name) if name else latest_run(base)
    failed = set(run.files) - passed_steps(run)
    if not failed:
        raise NothingSelected(f"{run.name}: everything in it has passed; nothing is left for --failed")
    found = restricted_plan(plan, failed)
    if not found.steps:
        raise NothingSelected(
            f"{run.name}: nothing that failed in it ({', '.join(sorted(failed)[:5])}) is in this plan"
        )
    return found


def passed_steps(run: Run) -> frozenset[str]:
    """The steps of which an attempt has passed."""
    from milabench.events.attempts import attempts

    tried = attempts(run.journal)
    return frozenset(step for step in run.files if any(each.outcome == "passed" for each in tried.get(step, ())))


def write_summary(path: Path) -> dict[str, int]:
    """Keep what the records come to, and return how many steps ended how.

    A summary that cannot be written is said, and can be made again at any time; of records that are gone, nothing is
    known.
    """
    from milabench.analysis.summary import summarise
    from milabench.events.rundir import RunWriter, open_run
    from milabench.workflow.run_checks import checks_of
    from milabench.workflow.summaries import stat_digest, summary_sources

    try:
        made, stat = open_run(path), stat_digest(path)
        summary = summarise(made, checks_of(made))
    except RecordError as error:
        print(f"warning: {error}", file=sys.stderr)
        return {}
    writer = RunWriter(path)
    try:
        writer.write_summary({**summary.to_json(), "made_of": summary_sources(path, stat)})
    except OSError as error:
        print(f"warning: {path}: the summary cannot be written: {error.strerror}", file=sys.stderr)
    finally:
        writer.close()
    return summary.counts
