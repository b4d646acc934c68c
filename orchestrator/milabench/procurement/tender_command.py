"""`milabench tender`, and `milabench compare --tender`."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from milabench.cli.compare import metric_option
from milabench.cli.formats import Destination, format_options
from milabench.cli.options import base_option, collected_as, is_on_command_line, same_command, terminal_session
from milabench.errors import DONE, STEPS_FAILED, UsageError
from milabench.workflow.options import CompareRequest

_TENDER = click.argument("tender", metavar="FILE", type=click.Path(path_type=Path))


@click.group("tender")
def command() -> None:
    """Check a tender (procurement.yaml) and its offers, or explain the numbers of a score."""


@command.command("check", short_help="Report all mistakes in a tender and its offers")
@_TENDER
@click.argument("offers", nargs=-1, metavar="[OFFER]...", type=click.Path(path_type=Path))
def check_tender(tender: Path, offers: tuple[Path, ...]) -> None:
    """Report all mistakes in a tender, and in offers (offer.yaml) to it."""
    from milabench.procurement.tenders import check_tender_files

    click.echo(check_tender_files(tender, offers), err=True)


@command.command("explain", short_help="Show where every number comes from")
@_TENDER
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option(
    "--of", "runs", multiple=True, metavar="RUN|OFFER", help="Also the score of this run, report, bundle or offer."
)
@metric_option
@base_option
@functools.partial(format_options, is_wide=True)
@collected_as("request", CompareRequest)
def explain_tender(
    tender: Path, keys: tuple[str, ...], request: CompareRequest, metric: str | None, destination: Destination
) -> None:
    """Show where each number of a tender and of its scores comes from: value, interval, formula, and file and line or records.

    KEY, such as `terms` or `benchmarks.bert.weight`, shows only the values below it.
    """
    from milabench.procurement.document_formats import write_document
    from milabench.procurement.provenance import select_keys
    from milabench.procurement.tender_report import provenance_document, provenance_to_json
    from milabench.procurement.tenders import explain_numbers

    if metric is not None and not request.runs:
        raise UsageError(f"--metric {metric} scores nothing here: name a run or an offer with --of")
    numbers = select_keys(explain_numbers(tender, request, terminal_session(), metric), keys)
    document = provenance_document(f"where the numbers of {tender} come from", numbers)
    destination.write(write_document(destination.format, document, provenance_to_json(numbers), destination.width))


def score_by_tender(request: CompareRequest, destination: Destination, tender: Path, metric: str | None) -> int:
    """Compare runs and offers by a tender, for `compare --tender`. Options that only comparisons of runs have are refused."""
    from milabench.procurement.document_formats import write_document
    from milabench.procurement.tender_report import tender_document, tender_screen, tender_to_json
    from milabench.procurement.tenders import compare_by_tender

    for option in ("why", "weights", "costs", "validations", "per"):
        if is_on_command_line(option):
            raise UsageError(f"--{option} cannot be used with --tender. Leave out --{option} or --tender")
    if destination.is_workbook:
        raise UsageError(
            "a workbook of offers is written by `milabench offer compare`. Leave out --tender, or choose another format"
        )
    scores = compare_by_tender(tender, request, terminal_session(), metric)
    document = tender_screen(scores, same_command()) if destination.is_brief else tender_document(scores)
    destination.write(write_document(destination.shown, document, tender_to_json(scores), destination.width))
    return STEPS_FAILED if scores.is_refused else DONE
