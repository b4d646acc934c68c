"""`milabench run`: plan, check that everything is in place, carry out, tell."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import (
    SuiteOptions,
    display_option,
    effort_options,
    plan_options,
    suite_options,
    validations_option,
)
from orchestrator.errors import DONE, INTERRUPTED, STEPS_FAILED, NothingSelected, RecordError

if TYPE_CHECKING:
    from orchestrator.cli.carry_out import Carried, Effort, Recording
    from orchestrator.cli.inputs import Inputs
    from orchestrator.cli.multirun import Variation
    from orchestrator.events.rundir import Run
    from orchestrator.plan.model import Plan

CHANGE_THE_EXIT_CODE = ("failed", "cancelled", "missing")


@click.command("run", help="Run and measure the selected benchmarks.")
@suite_options(environment=True)
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
@display_option
def command(
    options: SuiteOptions,
    run_name: str,
    repeat: int | None,
    profile: str | None,
    seed: int | None,
    failed: str | None,
    wait: bool,
    max_retries: int,
    maxfail: int | None,
    validations: str | None,
    dry_run: bool,
    as_json: bool,
    sizer_save: Path | None,
    display: str,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from orchestrator.checks.choose import chosen
    from orchestrator.cli.carry_out import Effort
    from orchestrator.cli.multirun import read_variations
    from orchestrator.cli.readiness import require_ready

    checks = chosen(validations or "all")
    now = int(time.time())
    if dry_run:
        runs = read_variations(
            options, run_name=run_name, stamp="{time}", repeats=repeat, profile=profile, seed=seed or 0
        )
        show_runs(runs, as_json=as_json)
        return DONE
    if as_json:
        raise click.UsageError("--json goes with --dry-run; `milabench report --json` tells what was measured")
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
    runs = read_variations(
        options,
        run_name=run_name,
        stamp=stamp,
        repeats=repeat,
        profile=profile,
        seed=seed if seed is not None else now,
    )
    plans = [decide(each.inputs) for each in runs]
    if failed is not None:
        plans = [
            only_failed(plan, failed, Path(each.inputs.where.dirs.base)) for each, plan in zip(runs, plans, strict=True)
        ]
    effort = Effort(wait=wait, max_retries=max_retries, max_failures=maxfail)
    for each, plan in zip(runs, plans, strict=True):
        require_ready(each.inputs, plan, each.options)
    code = DONE
    for each, plan in zip(runs, plans, strict=True):
        # The time is added to every run's name anyway.
        name = each.name.removesuffix(f".{stamp}")
        recording = recording_of(each.options, each.inputs, name=name, validations=checks)
        ended = run(plan, each.inputs, recording, display=display, effort=effort, sizer_save=sizer_save)
        if ended == INTERRUPTED:
            return INTERRUPTED
        code = max(code, ended)
    return code


def show_runs(runs: Sequence[Variation], *, as_json: bool, other: Path | None = None) -> None:
    """Print what would be run; see `show_plans`."""
    from orchestrator.cli.showing import Shown, show_plans
    from orchestrator.plan.show import plan_text

    plans = [(each, decide(each.inputs)) for each in runs]
    shown = [
        Shown(value=plan.to_json(), text=plan_text(plan), name=each.name, options=each.chosen) for each, plan in plans
    ]
    show_plans(shown, as_json=as_json, several=any(each.chosen for each in runs), other=other)


def run(
    plan: Plan, inputs: Inputs, recording: Recording, *, display: str, effort: Effort, sizer_save: Path | None = None
) -> int:
    """Carry the plan out, write its summary, and say how it ended."""
    from orchestrator.cli.carry_out import carry_out

    carried = carry_out(plan, inputs, recording, display=display, effort=effort)
    if sizer_save is not None:
        from orchestrator.cli.scaling import observed, save_observations

        save_observations(sizer_save, observed(carried.path, plan))
    return tell(carried)


def recording_of(
    options: SuiteOptions, inputs: Inputs, *, name: str, validations: Sequence[str] | None = None
) -> Recording:
    """What the run directory tells beside the plan."""
    from orchestrator.cli.carry_out import Recording
    from orchestrator.cli.readiness import environment_records
    from orchestrator.cli.remembered import packages_digest, remember

    locks, packages = environment_records(inputs)
    return Recording(
        name=name,
        suite=suite_values(inputs),
        locks=locks or packages_digest(packages),
        packages=packages,
        told={
            **remember(options, inputs),
            **({} if validations is None else {"validations": list(validations)}),
        },
    )


def tell(carried: Carried) -> int:
    """Write the summary of a run, say how its steps ended, all attempts considered, and give the exit code."""
    counts = write_summary(carried.path)
    if counts:
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
        print(f"run: {told}; records in {carried.path}; `milabench report` shows them", file=sys.stderr)
    if carried.done.interrupted:
        return INTERRUPTED
    is_whole = bool(counts) and not any(counts[outcome] for outcome in CHANGE_THE_EXIT_CODE)
    return DONE if is_whole and carried.done.all_passed else STEPS_FAILED


def only_failed(plan: Plan, name: str, base: Path) -> Plan:
    """The part of a plan that did not pass in a run of this name, or in the latest one. Raises NothingSelected."""
    from orchestrator.events.rundir import find_run, latest_run
    from orchestrator.plan.resume import only

    run = find_run(base, name) if name else latest_run(base)
    failed = set(run.files) - passed_steps(run)
    if not failed:
        raise NothingSelected(f"{run.name}: everything in it has passed; nothing is left for --failed")
    found = only(plan, failed)
    if not found.steps:
        raise NothingSelected(
            f"{run.name}: nothing that failed in it ({', '.join(sorted(failed)[:5])}) is in this plan"
        )
    return found


def passed_steps(run: Run) -> frozenset[str]:
    """The steps of which an attempt has passed."""
    from orchestrator.events.attempts import attempts

    tried = attempts(run.journal)
    return frozenset(step for step in run.files if any(each.outcome == "passed" for each in tried.get(step, ())))


def suite_values(inputs: Inputs) -> dict[str, Any]:
    """The selected benchmarks as resolved, without their secrets: what a later reader needs of the suite."""
    from orchestrator.config.show import complete_benchmark
    from orchestrator.plan.environ import secret_names

    values = {bench.config.name: complete_benchmark(bench.config) for bench in inputs.benches}
    for value in values.values():
        value["env"] = {name: text for name, text in value["env"].items() if name not in secret_names(value["env"])}
    return values


def write_summary(path: Path) -> dict[str, int]:
    """Keep what the records come to, and return how many steps ended how.

    A summary that cannot be written is said, and can be made again at any time; of records that are gone, nothing is
    known.
    """
    from orchestrator.analysis.summary import summarise
    from orchestrator.cli.validations import checks_of
    from orchestrator.events.rundir import RunWriter, open_run

    try:
        made = open_run(path)
        summary = summarise(made, checks_of(made))
    except RecordError as error:
        print(f"warning: {error}", file=sys.stderr)
        return {}
    writer = RunWriter(path)
    try:
        writer.write_summary(summary.to_json())
    except OSError as error:
        print(f"warning: {path}: the summary cannot be written: {error.strerror}", file=sys.stderr)
    finally:
        writer.close()
    return summary.counts


def decide(inputs: Inputs) -> Plan:
    """The plan of a run. Raises NothingSelected, with every reason, when nothing in it can run here."""
    from orchestrator.plan.run import plan_run

    plan = plan_run(inputs.benches, inputs.where)
    if not plan.steps:
        reasons = "; ".join(f"{skip.bench}: {skip.why}" for skip in plan.skipped)
        raise NothingSelected(f"no selected benchmark can run: {reasons}")
    return plan
