"""`milabench accept plan`."""

from __future__ import annotations

import click

from milabench.acceptance.accept_command import criteria_option, parsed_share, reference_option
from milabench.cli.formats import Destination, format_options
from milabench.cli.options import base_option, collected_as, rare_option, run_argument
from milabench.errors import DONE, VERDICT_CODES
from milabench.workflow.options import AcceptRequest


@click.command("plan")
@run_argument
@base_option
@criteria_option
@reference_option
@rare_option(
    "--power",
    callback=parsed_share,
    metavar="SHARE",
    default="0.95",
    show_default=True,
    help="Probability with which a system like that run should pass each criterion.",
)
@format_options
@collected_as("request", AcceptRequest)
def command(request: AcceptRequest, power: float, destination: Destination) -> int:
    """Plan the repeats, nodes and hours that acceptance criteria need, from the spread of RUN or --reference."""
    from milabench.procurement.acceptance_plan_report import render_plan
    from milabench.procurement.acceptance_runs import acceptance_plan

    plan = acceptance_plan(request, power)
    destination.write(render_plan(plan, destination.format))
    return DONE if plan.is_complete else VERDICT_CODES["INCONCLUSIVE"]
