"""`milabench run`: plan, check that everything is in place, carry out, tell."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import SuiteOptions, display_option, plan_options, suite_options
from orchestrator.errors import DONE, INTERRUPTED, STEPS_FAILED, NothingSelected

if TYPE_CHECKING:
    from orchestrator.cli.inputs import Inputs
    from orchestrator.cli.multirun import Variation
    from orchestrator.plan.model import Plan


@click.command("run", help="Run and measure the selected benchmarks.")
@suite_options(environment=True)
@plan_options
@click.option(
    "--run-name", default="run", envvar="MILABENCH_RUN_NAME", help="Name of the run; the time is added to it."
)
@click.option("--seed", type=int, help="Seed of the order in which benchmarks run. Default: the time.")
@click.option(
    "--wait",
    is_flag=True,
    envvar="MILABENCH_WAIT",
    help="Wait while another run measures on these devices, instead of refusing.",
)
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
    wait: bool,
    dry_run: bool,
    as_json: bool,
    sizer_save: Path | None,
    display: str,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from orchestrator.cli.multirun import read_variations
    from orchestrator.cli.readiness import require_ready

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
    for each, plan in zip(runs, plans, strict=True):
        require_ready(each.inputs, plan, each.options)
    code = DONE
    for each, plan in zip(runs, plans, strict=True):
        # The time is added to every run's name anyway.
        name = each.name.removesuffix(f".{stamp}")
        ended = run(plan, each.inputs, name=name, display=display, wait=wait, sizer_save=sizer_save)
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


def run(plan: Plan, inputs: Inputs, *, name: str, display: str, wait: bool, sizer_save: Path | None = None) -> int:
    """Carry the plan out, write its summary, and say how it ended."""
    from orchestrator.cli.carry_out import Recording, carry_out
    from orchestrator.cli.readiness import environment_records
    from orchestrator.execute.engine import name_of

    locks, packages = environment_records(inputs)
    recording = Recording(name=name, suite=suite_values(inputs), locks=locks, packages=packages)
    carried = carry_out(plan, inputs, recording, display=display, wait=wait)
    write_summary(carried.path)
    if sizer_save is not None:
        from orchestrator.cli.scaling import observed, save_observations

        save_observations(sizer_save, observed(carried.path, plan))
    outcomes = [name_of(outcome) for outcome in carried.done.outcomes.values()]
    counts = ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes))
    print(f"run: {counts}; records in {carried.path}; `milabench report` shows them", file=sys.stderr)
    if carried.done.interrupted:
        return INTERRUPTED
    return DONE if carried.done.all_passed else STEPS_FAILED


def suite_values(inputs: Inputs) -> dict[str, Any]:
    """The selected benchmarks as resolved, without their secrets: what a later reader needs of the suite."""
    from orchestrator.config.show import complete_benchmark
    from orchestrator.plan.environ import secret_names

    values = {bench.config.name: complete_benchmark(bench.config) for bench in inputs.benches}
    for value in values.values():
        value["env"] = {name: text for name, text in value["env"].items() if name not in secret_names(value["env"])}
    return values


def write_summary(path: Path) -> None:
    """Keep what the records come to; a summary that cannot be written is said, and can be made again at any time."""
    from orchestrator.analysis.summary import summarise
    from orchestrator.events.rundir import RunWriter, open_run

    writer = RunWriter(path)
    try:
        writer.write_summary(summarise(open_run(path)).to_json())
    except OSError as error:
        print(f"warning: {path}: the summary cannot be written: {error.strerror}", file=sys.stderr)
    finally:
        writer.close()


def decide(inputs: Inputs) -> Plan:
    """The plan of a run. Raises NothingSelected, with every reason, when nothing in it can run here."""
    from orchestrator.plan.run import plan_run

    plan = plan_run(inputs.benches, inputs.where)
    if not plan.steps:
        reasons = "; ".join(f"{skip.bench}: {skip.why}" for skip in plan.skipped)
        raise NothingSelected(f"no selected benchmark can run: {reasons}")
    return plan
