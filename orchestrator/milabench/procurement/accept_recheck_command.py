"""`milabench accept recheck`."""

from __future__ import annotations

from datetime import datetime

import click

from milabench.acceptance.accept_command import criteria_option, every_option, first_option, parsed_share, write_verdict
from milabench.cli.formats import Destination, screen_options
from milabench.cli.options import base_option, collected_as, run_argument
from milabench.workflow.options import AcceptRequest


@click.command("recheck")
@run_argument
@base_option
@click.option("--against", "reference", required=True, metavar="RUN|BUNDLE", help="The accepted run, or its bundle.")
@click.option(
    "--minimum",
    callback=parsed_share,
    metavar="SHARE",
    default="0.9",
    show_default=True,
    help="Share of the accepted rate that each benchmark must reach.",
)
@criteria_option
@every_option
@first_option
@screen_options
@collected_as("request", AcceptRequest)
def command(
    request: AcceptRequest, minimum: float, every: str | None, first: datetime | None, destination: Destination
) -> int:
    """Check a run, by default the latest, against the accepted run. Exit codes: 0 PASS, 7 FAIL, 8 INCONCLUSIVE.

    From --criteria, only `allow` is used.
    """
    from milabench.procurement.acceptance_runs import recheck_run

    return write_verdict(recheck_run(request, minimum), destination, every, first)
