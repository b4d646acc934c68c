"""`milabench plan`: what install, prepare or run would do, without doing it."""

from __future__ import annotations

import json
from typing import Any

import click

from orchestrator.cli.inputs import read_inputs
from orchestrator.cli.options import SuiteOptions, suite_options
from orchestrator.cli.run import decide
from orchestrator.plan.profile import PROFILES
from orchestrator.plan.show import plan_text


@click.command("plan", help="Show what install, prepare or run would do.")
@click.argument("phase", type=click.Choice(["install", "prepare", "run"]))
@suite_options(environment=True)
@click.option("--run-name", default="run", envvar="MILABENCH_RUN_NAME", help="Name of the run.")
@click.option("--repeat", type=click.IntRange(1), help="Fresh processes per benchmark. Default: as the profile says.")
@click.option(
    "--profile", type=click.Choice(list(PROFILES)), help="How long is measured. Default: what the suite says."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order in which benchmarks run.")
@click.option("--json", "as_json", is_flag=True, help="JSON (docs/protocol.md, section 6) instead of text.")
def command(
    options: SuiteOptions,
    phase: str,
    run_name: str,
    repeat: int | None,
    profile: str | None,
    seed: int,
    as_json: bool,
) -> int:
    """Hand the command line's values on; see the help text above."""
    inputs = read_inputs(options, run_name=run_name, repeats=repeat, profile=profile, seed=seed)
    value: dict[str, Any]
    match phase:
        case "run":
            plan = decide(inputs)
            value, text = plan.to_json(), plan_text(plan)
        case "prepare":
            from orchestrator.cli.prepare import decide as decide_prepare

            plan = decide_prepare(inputs)
            value, text = plan.to_json(), plan_text(plan)
        case _:
            from orchestrator.cli.environments import decide_install
            from orchestrator.cli.install import install_text

            install = decide_install(inputs)
            value, text = install.to_json(), install_text(install)
    click.echo(json.dumps(value, indent=1) if as_json else text, nl=as_json)
    return 0
