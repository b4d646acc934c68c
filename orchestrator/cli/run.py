"""`milabench run`: plan, check that everything is in place, carry out, tell."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.carry_out import Recording, carry_out
from orchestrator.cli.inputs import Inputs, read_inputs
from orchestrator.cli.options import SuiteOptions, display_option, suite_options
from orchestrator.cli.readiness import environment_records, require_ready
from orchestrator.errors import DONE, INTERRUPTED, STEPS_FAILED, NothingSelected
from orchestrator.execute.engine import name_of
from orchestrator.plan.model import Plan
from orchestrator.plan.profile import PROFILES
from orchestrator.plan.run import plan_run


@click.command("run", help="Run and measure the selected benchmarks.")
@suite_options(environment=True)
@click.option(
    "--run-name", default="run", envvar="MILABENCH_RUN_NAME", help="Name of the run; the time is added to it."
)
@click.option("--repeat", type=click.IntRange(1), help="Fresh processes per benchmark. Default: as the profile says.")
@click.option(
    "--profile", type=click.Choice(list(PROFILES)), help="How long is measured. Default: what the suite says."
)
@click.option("--seed", type=int, help="Seed of the order in which benchmarks run. Default: the time.")
@click.option("--wait", is_flag=True, help="Wait while another run measures on these devices, instead of refusing.")
@click.option("--dry-run", is_flag=True, help="Show the plan; the same as `milabench plan run`.")
@display_option
def command(
    options: SuiteOptions,
    run_name: str,
    repeat: int | None,
    profile: str | None,
    seed: int | None,
    wait: bool,
    dry_run: bool,
    display: str,
) -> int:
    """Hand the command line's values on; see the help text above."""
    seed = seed if seed is not None else int(time.time())
    inputs = read_inputs(options, run_name=run_name, repeats=repeat, profile=profile, seed=seed)
    plan = decide(inputs)
    if dry_run:
        from orchestrator.plan.show import plan_text

        click.echo(plan_text(plan), nl=False)
        return 0
    require_ready(inputs, plan, options)
    return run(plan, inputs, name=run_name, display=display, wait=wait)


def run(plan: Plan, inputs: Inputs, *, name: str, display: str, wait: bool) -> int:
    """Carry the plan out, write its summary, and say how it ended."""
    locks, packages = environment_records(inputs)
    recording = Recording(name=name, suite=suite_values(inputs), locks=locks, packages=packages)
    carried = carry_out(plan, inputs, recording, display=display, wait=wait)
    write_summary(carried.path)
    outcomes = [name_of(outcome) for outcome in carried.done.outcomes.values()]
    counts = ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes))
    print(f"run: {counts}; records in {carried.path}; `milabench report` shows them", file=sys.stderr)
    if carried.done.interrupted:
        return INTERRUPTED
    return DONE if carried.done.all_passed else STEPS_FAILED


def suite_values(inputs: Inputs) -> dict[str, Any]:
    """The selected benchmarks as resolved, which is what a later reader needs of the suite."""
    from orchestrator.config.show import complete_benchmark

    return {bench.config.name: complete_benchmark(bench.config) for bench in inputs.benches}


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
    plan = plan_run(inputs.benches, inputs.where)
    if not plan.steps:
        reasons = "; ".join(f"{skip.bench}: {skip.why}" for skip in plan.skipped)
        raise NothingSelected(f"no selected benchmark can run: {reasons}")
    return plan
