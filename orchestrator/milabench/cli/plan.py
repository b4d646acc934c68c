"""`milabench plan`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import json_option, plan_options, suite_options
from milabench.cli.plan_output import PlanOutput, print_plans, print_requests
from milabench.cli.terminal import terminal_session
from milabench.workflow.options import Extent, SuiteOptions


@click.command("plan")
@click.argument("phase", type=click.Choice(["install", "prepare", "run"]))
@suite_options(environment=True, ask=True)
@plan_options
@click.option("--run-name", default="run", envvar="MILABENCH_RUN_NAME", help="Name of the run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order in which benchmarks run.")
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
    phase: str,
    run_name: str,
    seed: int,
    as_json: bool,
    other: Path | None,
) -> None:
    """Show what install, prepare or run would do."""
    from milabench.plan.show import plan_text
    from milabench.workflow.context import read_context

    session = terminal_session()
    if phase == "run":
        print_requests(options, extent, session, run_name=run_name, seed=seed, as_json=as_json, other=other)
        return
    if extent.ab is not None:
        raise click.UsageError(f"--ab goes with `plan run`; give each suite to `plan {phase}` with --config")
    context = read_context(options, session, extent, run_name=run_name, seed=seed)
    if phase == "prepare":
        from milabench.workflow.preparations import pending_preparations

        preparations = pending_preparations(context)
        output = PlanOutput(value=preparations.to_json(), text=plan_text(preparations))
    else:
        from milabench.workflow.environments import decide_install
        from milabench.workflow.install import install_text

        install = decide_install(context)
        output = PlanOutput(value=install.to_json(), text=install_text(install))
    print_plans([output], as_json=as_json, other=other)
