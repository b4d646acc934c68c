"""`milabench report`."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from milabench import seams
from milabench.cli import options
from milabench.cli.formats import Destination, screen_options
from milabench.cli.options import rare_option
from milabench.errors import UsageError
from milabench.workflow.options import ReportRequest


@click.command("report")
@options.runs_argument()
@options.base_option
@functools.partial(screen_options, has_workbook=True)
@click.option(
    "--reference",
    metavar="RUN|FILE",
    help="Reference of the score: a run, its JSON report or bundle, a shipped reference (`milabench list --references`), "
    "or none. Default: the system file's reference, else a shipped reference of the same kind.",
)
@options.file_option(
    "--weights",
    rare=True,
    metavar="NAME|FILE",
    help="Weights instead of the suite's: a profile (training, inference, science, machine), or a file by benchmark (YAML).",
)
@rare_option(
    "--score",
    type=click.Choice(["index", "compat"]),
    default="index",
    show_default=True,
    help="compat: the score of milabench 1.3, and for its own runs its other figures.",
)
@options.file_option(
    "--tender",
    metavar="FILE",
    help="Add energy, cost and carbon of the work by the terms of a tender (procurement.yaml) and the system file's price.",
)
@options.validations_option
@rare_option(
    "--from-db",
    is_flag=True,
    help="Report from the results store instead of records (docs/reference/results-store.md).",
)
@options.db_option
@options.file_option(
    "--save-reference", metavar="FILE", help="Write the run as a reference result, without host names, users and paths."
)
@click.option(
    "--site",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a static site: an index of the runs (by default of all), a page for each, histories, the map of a fleet.",
)
@options.collected_as("request", ReportRequest)
def command(
    request: ReportRequest,
    destination: Destination,
    save_reference: Path | None,
    site: Path | None,
) -> None:
    """Report on runs: folders, names below the base, or bundles. Default: the latest run."""
    if site is not None:
        others = (
            destination.full,
            request.from_db,
            request.weights,
            request.tender,
            request.score != "index",
            save_reference,
        )
        if not destination.is_default or any(others):
            raise UsageError("--site writes pages of its own. Give it only runs, --base, --reference and --validations")
        seams.handler("report --site")(request, site, options.terminal_session())
        return
    if save_reference is not None:
        from milabench.workflow.references import save_reference as save

        if not destination.is_default or destination.full:
            raise UsageError("--save-reference writes a file of its own. Give it only a run and --base")

        save(request.base, request.runs, save_reference, options.terminal_session())
        return
    from milabench.workflow.report_runs import render_report, report_workbook

    if destination.is_workbook:
        destination.write(report_workbook(request, options.terminal_session()))
        return
    shown = render_report(request, destination.shown, options.terminal_session(), destination.width)
    destination.write(shown)
