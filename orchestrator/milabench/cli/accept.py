"""`milabench accept`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.formats import Destination, format_options
from milabench.cli.options import base_option, file_option, run_argument
from milabench.errors import DONE, VERDICT_CODES, UsageError
from milabench.report.registry import FORMATS
from milabench.workflow.files import write_file

if TYPE_CHECKING:
    from milabench.acceptance.evaluate import Acceptance


def _share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return `90 %` or 0.9 as a number. Raises BadParameter for what is not above 0 and at most 1."""
    if value is None:
        return None
    try:
        number = float(value.strip().removesuffix("%")) / (100 if value.strip().endswith("%") else 1)
    except ValueError:
        number = math.nan
    if not 0 < number <= 1:
        raise click.BadParameter(f"'{value}' is no share; give 0.9 or '90 %'", ctx, param)
    return number


@click.command("accept")
@run_argument
@base_option
@file_option("--criteria", help="Acceptance criteria (YAML); see docs/reference/criteria.md.")
@click.option(
    "--reference", metavar="RUN|FILE", help="The run, JSON report or bundle of one, that `x reference` means."
)
@click.option(
    "--recheck",
    callback=_share,
    metavar="SHARE",
    help="Instead of criteria: each benchmark reaches this share (0.9) of what it reached in the run of --against.",
)
@click.option("--against", metavar="RUN|BUNDLE", help="With --recheck: the run that was accepted, or a bundle of it.")
@click.option("--every", metavar="INTERVAL", help="Tell when to check again: '2 years', '6 months', '90 days'.")
@click.option(
    "--from",
    "first",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="With --every: the day of the acceptance. Default: that of the accepted run.",
)
@file_option("--calendar", help="With --every: write the dates to an iCalendar file.")
@format_options
@click.option("--schema", "print_schema", is_flag=True, help="Print the JSON schema of a criteria file, and exit.")
def command(
    run: str | None,
    base: Path | None,
    criteria: Path | None,
    reference: str | None,
    recheck: float | None,
    against: str | None,
    every: str | None,
    first: datetime | None,
    calendar: Path | None,
    destination: Destination,
    print_schema: bool,
) -> int:
    """Check a run, by default the latest, against acceptance criteria. Exit codes: 0 PASS, 7 FAIL, 8 INCONCLUSIVE."""
    if print_schema:
        from milabench.workflow.schemas import schema_text

        click.echo(schema_text("acceptance"), nl=False)
        return DONE
    from milabench.workflow.acceptance_runs import recheck_run
    from milabench.workflow.report_runs import accept_run

    _require_beside("--recheck", recheck, {"--against": against})
    _require_beside("--every", every, {"--from": first, "--calendar": calendar})
    renderer = FORMATS[destination.format].renderer
    if recheck is not None:
        if against is None or reference is not None:
            raise UsageError("--recheck: name the accepted run, or a bundle of it, with --against (not --reference)")
        acceptance = recheck_run(run, base, against, recheck, criteria)
    elif criteria is None:
        raise UsageError("missing option --criteria FILE; docs/reference/criteria.md shows such a file")
    else:
        acceptance = accept_run(run, base, criteria, reference)
    if every is not None:
        acceptance = _with_calendar(acceptance, every, first, calendar, recheck)
    destination.write(renderer.render_acceptance(acceptance))
    if destination.output is not None:
        click.echo(acceptance.verdict, err=True)
    return VERDICT_CODES[acceptance.verdict]


def _require_beside(option: str, given: Any, needing: Mapping[str, Any]) -> None:
    for name, value in needing.items():
        if value is not None and given is None:
            raise UsageError(f"{name} goes with {option}")


def _with_calendar(
    acceptance: Acceptance, every: str, first: datetime | None, calendar: Path | None, limit: float | None
) -> Acceptance:
    """Return the verdict with the dates of the next rechecks, which also go to the calendar file."""
    from milabench.procurement.recheck_calendar import RecheckCalendar

    accepted_on = first or _day(acceptance.accepted_on)
    if accepted_on is None:
        raise UsageError("--every: the accepted run does not say when it began; give its day with --from 2026-11-01")
    system = acceptance.reference if limit is not None and acceptance.reference else acceptance.run
    dates = RecheckCalendar(system=system, every=every, first=accepted_on.date(), limit=limit)
    acceptance = replace(acceptance, notes=(*acceptance.notes, dates.note))
    if calendar is not None:
        write_file(calendar, dates.to_ics(), is_folder_made=False)
        click.echo(f"written to {calendar}", err=True)
    return acceptance


def _day(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
