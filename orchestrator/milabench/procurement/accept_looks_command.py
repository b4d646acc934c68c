"""`milabench accept looks`."""

from __future__ import annotations

import click

from milabench.acceptance.accept_command import (
    across_option,
    checked_request,
    criteria_option,
    parsed_share,
    reference_option,
    write_verdict,
)
from milabench.cli.formats import Destination, screen_options
from milabench.cli.options import base_option, collected_as, rare_option, removed_option, run_argument
from milabench.procurement.sequential_acceptance import SequentialPlan
from milabench.workflow.options import AcceptRequest


@click.command("looks")
@run_argument
@base_option
@criteria_option
@reference_option
@across_option
@rare_option(
    "--alpha",
    callback=parsed_share,
    metavar="SHARE",
    default="0.05",
    show_default=True,
    help="How often a good system may be rejected.",
)
@rare_option(
    "--beta",
    callback=parsed_share,
    metavar="SHARE",
    default="0.1",
    show_default=True,
    help="How often a bad system may be accepted.",
)
@removed_option("--boundary", "error rates are shared out after Lan and DeMets")
@rare_option(
    "--cap",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of repeats, decided before the first. Default: as planned.",
)
@rare_option(
    "--bad-failure-rate",
    callback=parsed_share,
    metavar="SHARE",
    help="Failure rate of a bad system. Default: twice the rate in the criteria.",
)
@screen_options
@collected_as("request", AcceptRequest)
@collected_as("plan", SequentialPlan)
def command(request: AcceptRequest, plan: SequentialPlan, destination: Destination) -> int:
    """Check a growing run repeat by repeat: accepted, rejected or inconclusive.

    Exit codes: 0 PASS, 7 FAIL, 8 INCONCLUSIVE.
    """
    from milabench.procurement.acceptance_runs import accept_growing_run

    return write_verdict(accept_growing_run(checked_request(request), plan), destination)
