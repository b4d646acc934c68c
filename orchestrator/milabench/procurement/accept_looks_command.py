"""`milabench accept looks`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.acceptance.accept_command import (
    across_option,
    criteria_option,
    parsed_share,
    reference_option,
    require_reference,
    required_criteria,
    write_verdict,
)
from milabench.cli.formats import Destination, screen_options
from milabench.cli.options import base_option, collected_as, rare_option, removed_option, run_argument
from milabench.procurement.sequential_acceptance import SequentialPlan


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
@collected_as("plan", SequentialPlan)
def command(
    run: str | None,
    base: Path | None,
    criteria: Path | None,
    reference: str | None,
    across: bool,
    plan: SequentialPlan,
    destination: Destination,
) -> int:
    """Check a growing run repeat by repeat: accepted, rejected or undecided.

    Exit codes: 0 PASS, 7 FAIL, 8 INCONCLUSIVE.
    """
    from milabench.procurement.acceptance_runs import accept_growing_run

    file = required_criteria(criteria)
    require_reference(reference)
    return write_verdict(accept_growing_run(run, base, file, reference, plan, across=across), destination)
