"""`milabench offer`."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from milabench.cli.compare import metric_option
from milabench.cli.formats import Destination, format_options, screen_options
from milabench.cli.options import base_option, collected_as, file_option, same_command, terminal_session
from milabench.errors import DONE, STEPS_FAILED, VERDICT_CODES, RecordError
from milabench.procurement.requests import OffersRequest
from milabench.shown import counted

_tender_option = file_option("--tender", required=True, help="The tender (procurement.yaml).")


@click.group("offer")
def command() -> None:
    """Create an offer's archive, verify it against its tender, or compare all offers to a tender."""


@command.command("create", short_help="Pack a declaration and its runs into one archive")
@_tender_option
@file_option("--offer", "declaration", required=True, help="Declaration of the offer (offer.yaml). It names the runs.")
@file_option("-o", "--output", required=True, help="The zip file to write.")
@file_option("--sign", "key", metavar="KEY", help="Sign with this SSH key.")
@base_option
def pack_offer(tender: Path, declaration: Path, output: Path, key: Path | None, base: Path | None) -> None:
    """Pack an offer's declaration with every run that it names into a tamper-evident archive.

    It is a bundle: `milabench verify` recomputes its numbers, `milabench offer verify` also compares it with the tender.
    """
    from milabench.procurement.offer_archives import create_offer

    manifest = create_offer(tender, declaration, output, base, key)
    for note in manifest.notes:
        click.echo(f"note: {note}", err=True)
    held = f"{counted(len(manifest.runs), 'run')}, {counted(len(manifest.files), 'file')}"
    click.echo(f"written to {output}: {held}, chain {manifest.chain}")


@command.command(
    "verify",
    short_help="Recompute an offer's numbers and find its changes",
    epilog="Exit codes: 0: PASS. 2: the tender or the declaration has mistakes. 6: altered, or no offer. 7: FAIL. 8: "
    "INCONCLUSIVE, as the records do not show a declared figure or level.",
)
@click.argument("offer", type=click.Path(path_type=Path))
@_tender_option
@file_option(
    "--allowed-signers", metavar="FILE", help="Require a signature by a key of this file (the format of ssh-keygen)."
)
@functools.partial(format_options, is_wide=True)
def verify_archive(offer: Path, tender: Path, allowed_signers: Path | None, destination: Destination) -> int:
    """Recompute every number of an offer from its records, list its changes by tier, and check its power level."""
    return show_verified_offer(offer, tender, allowed_signers, destination)


def show_verified_offer(offer: Path, tender: Path, allowed_signers: Path | None, destination: Destination) -> int:
    """Write the findings of verifying an offer, and return its exit code."""
    from milabench.procurement.document_formats import write_document
    from milabench.procurement.offer_archives import signed_text, verify_offer
    from milabench.procurement.offer_report import check_to_json, offer_document

    verified, check = verify_offer(offer, tender, terminal_session(), allowed_signers)
    document = offer_document(check, verified.verdict, verified.wrong, signed_text(verified))
    value = {**check_to_json(check), "bundle": verified.to_json(str(offer))}
    destination.write(write_document(destination.format, document, value, destination.width))
    return RecordError.exit_code if verified.wrong else VERDICT_CODES[check.verdict]


@command.command(
    "compare",
    short_help="Compare all offers in a folder by a tender",
    epilog="Exit codes: 0: compared. 1: no offer is admissible. 2: a tender or a declaration has mistakes. 3: no offer in the "
    "folder. 6: an offer was altered or cannot be read. 7: an offer fails its verification.",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True))
@_tender_option
@metric_option
@file_option(
    "--allowed-signers", metavar="FILE", help="Require signatures by keys of this file (the format of ssh-keygen)."
)
@base_option
@functools.partial(screen_options, has_workbook=True)
@collected_as("request", OffersRequest)
def compare_offers(request: OffersRequest, destination: Destination) -> int:
    """Compare the offers (archives of `milabench offer create`) in a folder: scores, costs, power, verification."""
    from milabench.procurement.document_formats import write_document
    from milabench.procurement.offer_archives import offer_table
    from milabench.procurement.offers_report import (
        offers_document,
        offers_page,
        offers_screen,
        offers_to_json,
        offers_workbook,
    )

    is_workbook = destination.is_workbook
    table = offer_table(request, terminal_session())
    if is_workbook:
        destination.write(offers_workbook(table))
    elif destination.format == "html":
        destination.write(offers_page(table))
    else:
        document = offers_screen(table, same_command()) if destination.is_brief else offers_document(table)
        destination.write(write_document(destination.shown, document, offers_to_json(table), destination.width))
    if table.unreadable or any(side.altered for side in table.sides):
        return RecordError.exit_code
    if any(side.check.verdict == "FAIL" for side in table.sides):
        return VERDICT_CODES["FAIL"]
    return DONE if any(side.entry.is_admissible for side in table.sides) else STEPS_FAILED
