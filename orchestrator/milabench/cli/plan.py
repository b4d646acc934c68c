"""`milabench plan`: what install, prepare or run would do, without doing it."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import Extent, SuiteOptions, plan_options, suite_options


@click.command("plan", help="Show what install, prepare or run would do.")
@click.argument("phase", type=click.Choice(["install", "prepare", "run"]))
@suite_options(environment=True, ask=True)
@plan_options
@click.option("--run-name", default="run", envvar="MILABENCH_RUN_NAME", help="Name of the run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order in which benchmarks run.")
@click.option("--json", "as_json", is_flag=True, help="JSON (docs/protocol.md, section 6) instead of text.")
@click.option(
    "--diff",
    "other",
    metavar="OTHER_PLAN.json",
    type=click.Path(path_type=Path),
    help="Show what is different from this plan, or from the plan in a run's manifest.json.",
)
def command(
    options: SuiteOptions,
    extent: Extent,
    phase: str,
    run_name: str,
    seed: int,
    as_json: bool,
    other: Path | None,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.cli.plan_output import PlanOutput, show_plans
    from milabench.plan.show import plan_text
    from milabench.workflow.context import read_context

    if phase == "run":
        from milabench.cli.run import show_requests
        from milabench.workflow.request import expand_requests

        asked = expand_requests(options, extent, run_name=run_name, stamp="{time}", seed=seed)
        show_requests(asked, as_json=as_json, other=other)
        return 0
    if extent.ab is not None:
        raise click.UsageError(f"--ab goes with `plan run`; give each suite to `plan {phase}` with --config")
    inputs = read_context(options, run_name=run_name, repeats=extent.repeat, profile=extent.profile, seed=seed)
    if phase == "prepare":
        from milabench.workflow.preparations import pending_preparations as decide_prepare

        plan = decide_prepare(inputs, options)
        shown = PlanOutput(value=plan.to_json(), text=plan_text(plan))
    else:
        from milabench.cli.install import install_text
        from milabench.workflow.environments import decide_install

        install = decide_install(inputs)
        shown = PlanOutput(value=install.to_json(), text=install_text(install))
    show_plans([shown], as_json=as_json, other=other)
    return 0
