"""`milabench accept`, with the options and functions that its commands share."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from milabench import seams
from milabench.cli.formats import Destination, screen_options
from milabench.cli.options import (
    base_option,
    collected_as,
    file_option,
    fraction_in,
    is_on_command_line,
    rare_option,
    removed_option,
    run_argument,
    same_command,
    typed_base,
)
from milabench.errors import DONE, VERDICT_CODES, UsageError
from milabench.report.registry import FORMATS
from milabench.workflow.options import AcceptRequest

if TYPE_CHECKING:
    from milabench.analysis.acceptance_model import Acceptance

criteria_option = file_option("--criteria", help="Acceptance criteria (YAML, docs/reference/criteria.md).")
reference_option = click.option(
    "--reference",
    metavar="RUN|FILE",
    help="What `x reference` in the criteria refers to: a run, its JSON report or its bundle.",
)
across_option = rare_option(
    "--across", is_flag=True, help="Decide also on benchmarks whose arguments are not the reference's."
)
every_option = click.option(
    "--every", metavar="INTERVAL", help="Print the dates of the next checks: '2 years', '6 months', '90 days'."
)
first_option = click.option(
    "--from",
    "first",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="With --every: the day of the acceptance. Default: the day of the accepted run.",
)

_PLAN = "use `milabench accept plan`"
_RECHECK = "use `milabench accept recheck --against RUN --minimum SHARE`"
_LOOKS = "use `milabench accept looks`"


def parsed_share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return `90 %` or 0.9 as a number. Raises BadParameter for a number not above 0 and at most 1."""
    if value is None:
        return None
    number = fraction_in(value)
    if not 0 < number <= 1:
        raise click.BadParameter(f"'{value}' is no share. Give 0.9 or '90 %'", ctx, param)
    return number


@click.command("accept")
@run_argument
@base_option
@criteria_option
@reference_option
@across_option
@every_option
@first_option
@removed_option("--calendar", "--every prints the dates")
@removed_option("--plan", _PLAN, is_flag=True)
@removed_option("--power", _PLAN)
@removed_option("--recheck", _RECHECK)
@removed_option("--against", _RECHECK)
@removed_option("--sequential", _LOOKS, is_flag=True)
@removed_option("--alpha", _LOOKS)
@removed_option("--beta", _LOOKS)
@removed_option("--cap", _LOOKS)
@removed_option("--bad-failure-rate", _LOOKS)
@screen_options
@click.option("--schema", "print_schema", is_flag=True, help="Print the JSON schema of a criteria file, and exit.")
@collected_as("request", AcceptRequest)
def command(
    request: AcceptRequest, every: str | None, first: datetime | None, destination: Destination, print_schema: bool
) -> int:
    """Check a run, by default the latest, against acceptance criteria. Exit codes: 0 PASS, 7 FAIL, 8 INCONCLUSIVE."""
    if print_schema:
        from milabench.suite_check.schemas import schema_text

        click.echo(schema_text("acceptance"), nl=False)
        return DONE
    from milabench.acceptance.accept_runs import accept_run

    return write_verdict(accept_run(checked_request(request)), destination, every, first)


def checked_request(request: AcceptRequest) -> AcceptRequest:
    """Return the request. Raises UsageError without a file of criteria, and for --across without a reference."""
    if request.file and request.reference is None and is_on_command_line("across"):
        raise UsageError("--across goes with --reference")
    return request


def write_verdict(
    acceptance: Acceptance, destination: Destination, every: str | None = None, first: datetime | None = None
) -> int:
    """Write a verdict, with the dates of the next rechecks where they are asked for, and return its exit code."""
    if every is not None:
        acceptance = _with_rechecks(acceptance, every, first)
    elif is_on_command_line("first"):
        raise UsageError("--from goes with --every")
    destination.write(FORMATS[destination.shown].fitted(destination.width).render_acceptance(acceptance))
    if destination.is_brief:
        from milabench.report.decision_screens import acceptance_next

        click.echo(f"\nnext: {acceptance_next(acceptance, same_command(), typed_base())}")
    if destination.output is not None:
        click.echo(acceptance.verdict, err=True)
    return VERDICT_CODES[acceptance.verdict]


def _with_rechecks(acceptance: Acceptance, every: str, first: datetime | None) -> Acceptance:
    """Return the verdict with the dates of the next rechecks."""
    accepted_on = first or _day(acceptance.accepted_on)
    if accepted_on is None:
        raise UsageError("--every: the accepted run does not say when it began. Give its day with --from 2026-11-01")
    return replace(acceptance, notes=(*acceptance.notes, seams.handler("accept --every")(every, accepted_on.date())))


def _day(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
