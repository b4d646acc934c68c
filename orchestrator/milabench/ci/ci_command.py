"""`milabench ci`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.ci.ci_reports import Gates
from milabench.cli import options as shared
from milabench.cli.compare import margin_option
from milabench.workflow.options import Extent, SuiteOptions
from milabench.workflow.run_suite import RunSettings


@click.command(
    "ci",
    epilog="Exit codes: with criteria 7 FAIL and 8 INCONCLUSIVE come first. 1: a step did not pass, or a benchmark is SLOWER "
    "than in the baseline. Others as for every command.",
)
@shared.suite_options(environment=True, nodes="executes")
@shared.plan_options
@shared.retry_options
@click.option(
    "--baseline",
    "reference",  # a suite's own `baseline`, in Extent, is a benchmark
    metavar="RUN|FILE",
    help="Compare with this run, JSON report or bundle. It is also `x reference` in the criteria.",
)
@shared.file_option("--criteria", help="Acceptance criteria (YAML) that decide the exit code.")
@margin_option
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    default="milabench-reports",
    show_default=True,
    help="Folder of the reports: summary.md, report.json (the next baseline), JUnit XML. Earlier reports are removed.",
)
@shared.display_option
@shared.collected_as("gates", Gates)
@shared.collected_as("settings", RunSettings)
def command(options: SuiteOptions, extent: Extent, settings: RunSettings, gates: Gates, display: str) -> int:
    """Do all steps of a build server's job: doctor, install, prepare, run, report, compare, accept."""
    from milabench.ci.job import run_job

    if extent.ab is not None and (gates.reference is not None or gates.criteria is not None):
        raise click.UsageError("--ab compares two suites. Leave out --baseline and --criteria")
    width = shared.table_width(wide=False)
    return run_job(options, extent, settings, gates, shared.terminal_session(display), click.echo, width)
