"""`milabench run`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from milabench import seams
from milabench.cli import options as shared
from milabench.errors import DONE
from milabench.workflow.options import Extent, SuiteOptions
from milabench.workflow.run_suite import RunSettings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from milabench.execute.detach import DetachHandover


@click.command("run")
@shared.suite_options(environment=True, nodes="executes")
@shared.plan_options
@click.option("--run-name", default="run", help="Name of the run. The time is appended.")
@shared.rare_option("--seed", type=int, help="Seed of the order in which benchmarks run. Default: the time.")
@click.option(
    "--failed",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Run only steps that did not pass in this run. Default: the latest run.",
)
@shared.job_options
@shared.retry_options
@shared.validations_option
@shared.rare_option(
    "--no-prepare",
    is_flag=True,
    help="Refuse to run unprepared benchmarks. Default: prepare them first, at most 60 s each.",
)
@shared.rare_option("--no-gate", is_flag=True, help="Exit with 0 also where a comparison is SLOWER.")
@click.option("--dry-run", is_flag=True, help="Show the plan, as `milabench plan run` does.")
@shared.rare_option("--json", "as_json", is_flag=True, help="With --dry-run: print JSON instead of text.")
@shared.file_option(
    "--sizer-save",
    "save_sizes",
    rare=True,
    help="Add the batch sizes of the run, with their memory and rate, to this file of observations.",
)
@shared.detach_option
@shared.display_option
@shared.collected_as("settings", RunSettings)
def command(
    options: SuiteOptions,
    extent: Extent,
    settings: RunSettings,
    dry_run: bool,
    as_json: bool,
    detach: bool,
    display: str,
) -> int:
    """Run and measure the selected benchmarks."""
    if not extent.run_name:
        raise click.UsageError("--run-name is empty. Give a name, or leave it out")
    session = shared.terminal_session(display)
    if not (dry_run or detach or settings.submit):
        session.start_agent(extent.run_name)  # it starts while all that reads the suite is imported
    from milabench.workflow.detach import run_detachable
    from milabench.workflow.run_suite import execute_runs, prepare_runs

    if dry_run:
        from milabench.cli.plan import print_requests

        if detach and shared.is_on_command_line("detach"):
            raise click.UsageError("--detach cannot be used with --dry-run: a dry run ends at once")
        # A dry run reaches no other machine.
        options = replace(options, ask_nodes=False)
        print_requests(options, extent, session, submit=settings.submit, as_json=as_json)
        return DONE
    if as_json:
        raise click.UsageError("--json goes with --dry-run. `milabench report --json` shows the results of a run")
    if settings.save_sizes is not None and extent.ab is not None:
        raise click.UsageError("--sizer-save saves the observations of a single suite. Leave out --ab")
    if settings.submit is not None:
        prepared = prepare_runs(replace(options, ask_nodes=False), extent, settings, session)
        ended: Iterable[tuple[Path, int]] = seams.handler("jobs of a run").submit_runs(prepared, session, detach=detach)
        return max(code for _, code in ended)
    prepared = prepare_runs(options, extent, settings, session)

    def execute(handover: DetachHandover | None) -> int:
        return max(code for _, code in execute_runs(prepared, session, handover))

    return run_detachable("run", execute, session, detach=detach)
