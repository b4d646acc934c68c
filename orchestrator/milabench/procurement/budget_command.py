"""`milabench budget`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.analysis.json_codec import to_json_value
from milabench.cli.compare import metric_option
from milabench.cli.formats import Destination, screen_options
from milabench.cli.options import base_option, collected_as, fraction_in, same_command, terminal_session
from milabench.errors import DONE
from milabench.procurement.requests import BudgetRequest


def varied_share(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Return `10%` or 0.1 as a share from 0 to 1. Raises BadParameter."""
    share = fraction_in(value)
    if not 0 <= share < 1:
        raise click.BadParameter(f"expected a share such as 10% or 0.1, got '{value}'", ctx, param)
    return share


@click.command(
    "budget",
    epilog="Exit codes: 0: answered. 2: usage, or a tender or an offer that lacks a value the question needs. 3: nothing in "
    "common. 6: records unreadable.",
)
@click.argument("tender", metavar="TENDER", type=click.Path(path_type=Path))
@click.argument("systems", nargs=-1, metavar="[RUN|OFFER]...")
@base_option
@click.option(
    "--match",
    nargs=2,
    metavar="A B",
    help="Compute how many nodes of B, and of the other systems, reach the score of A.",
)
@click.option("--spend", metavar="AMOUNT", help="Money for purchase and the tender's years of use: 2M, '300 k EUR'.")
@click.option("--power", metavar="AMOUNT", help="Power limit: 400kW.")
@metric_option
@click.option(
    "--vary",
    callback=varied_share,
    default="10%",
    show_default=True,
    metavar="SHARE",
    help="Vary amounts without an uncertainty by this share, to show how the answer depends on them. 0: do not vary them.",
)
@screen_options
@collected_as("request", BudgetRequest)
def command(request: BudgetRequest, destination: Destination) -> int:
    """Compute how many nodes match another system, a budget or a power limit. Default: the limits of the tender.

    Systems are offers (offer.yaml), runs, JSON reports or bundles.
    """
    from milabench.procurement.budget_questions import answer_budget
    from milabench.procurement.budget_report import budget_document, budget_screen
    from milabench.procurement.document_formats import write_document

    answered = answer_budget(request, terminal_session())
    if destination.format == "html":
        from milabench.procurement.budget_page import budget_page  # takes longer to import than text takes to write

        destination.write(budget_page(answered))
        return DONE
    document = budget_screen(answered, same_command()) if destination.is_brief else budget_document(answered)
    destination.write(write_document(destination.shown, document, to_json_value(answered), destination.width))
    return DONE
