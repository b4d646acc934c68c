"""`milabench offers`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.compare import metric_option
from milabench.cli.formats import Destination, format_options
from milabench.cli.options import base_option, file_option, table_width, terminal_session, wide_option
from milabench.errors import DONE, STEPS_FAILED, VERDICT_CODES, RecordError


@click.group("offers")
def command() -> None:
    """Compare all offers to a tender."""


@command.command(
    "compare",
    short_help="Compare all offers in a folder by a tender",
    epilog="Exit codes: 0 compared; 1 no offer is admissible; 2 a tender or a declaration has mistakes; 3 no offer in the "
    "folder; 6 an offer was altered or cannot be read; 7 an offer fails its verification.",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True))
@file_option("--tender", required=True, help="The tender (procurement.yaml) that they answer.")
@metric_option
@file_option("--allowed-signers", metavar="FILE", help="Require signatures by one of these (the format of ssh-keygen).")
@base_option
@lambda function: format_options(function, has_workbook=True)
@wide_option
def compare_offers(
    folder: Path,
    tender: Path,
    metric: str | None,
    allowed_signers: Path | None,
    base: Path | None,
    destination: Destination,
    wide: bool,
) -> int:
    """Compare the offers (archives of `milabench offer create`) in a folder: scores, costs, power, what verifying them found."""
    from milabench.report.document_formats import write_document
    from milabench.report.offers import offers_document, offers_page, offers_to_json, offers_workbook
    from milabench.workflow.offers import offer_table

    is_workbook = destination.is_workbook
    table = offer_table(folder, tender, terminal_session(), base, metric=metric or "", allowed_signers=allowed_signers)
    if is_workbook:
        destination.write(offers_workbook(table))
    elif destination.format == "html":
        destination.write(offers_page(table))
    else:
        width = table_width(wide) if destination.output is None else None
        document = offers_document(table)
        destination.write(write_document(destination.format, document, offers_to_json(table), width))
    if table.unreadable or any(side.altered for side in table.sides):
        return RecordError.exit_code
    if any(side.check.verdict == "FAIL" for side in table.sides):
        return VERDICT_CODES["FAIL"]
    return DONE if any(side.entry.is_admissible for side in table.sides) else STEPS_FAILED
