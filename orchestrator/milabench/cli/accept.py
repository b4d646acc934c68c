"""`milabench accept`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench import seams
from milabench.cli.formats import Destination, format_options
from milabench.cli.options import (
    base_option,
    file_option,
    is_on_command_line,
    rare_option,
    removed_option,
    run_argument,
)
from milabench.errors import DONE, VERDICT_CODES, UsageError
from milabench.report.registry import FORMATS

if TYPE_CHECKING:
    from milabench.acceptance.evaluate import Acceptance

# By parameter: what stands alone says nothing. A variable may be set for all commands of a shell, and contradicts nothing.
_GOES_WITH = {
    "across": "reference",
    "against": "recheck",
    "first": "every",
    "power": "is_plan",
    **dict.fromkeys(("alpha", "beta", "cap", "bad_failure_rate"), "sequential"),
}
_TYPED = {"first": "--from", "bad_failure_rate": "--bad-failure-rate", "is_plan": "--plan"}
DEFAULT_POWER, DEFAULT_ALPHA, DEFAULT_BETA = 0.95, 0.05, 0.1


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
@file_option("--criteria", help="Acceptance criteria (YAML, docs/reference/criteria.md).")
@click.option(
    "--reference", metavar="RUN|FILE", help="Reference of `x reference`: a run, its JSON report or its bundle."
)
@rare_option("--across", is_flag=True, help="Decide also on benchmarks whose arguments are not the reference's.")
@click.option(
    "--recheck",
    callback=_share,
    metavar="SHARE",
    help="Instead of criteria: each benchmark must reach this share (0.9) of its number in --against.",
)
@click.option("--against", metavar="RUN|BUNDLE", help="With --recheck: the accepted run, or its bundle.")
@click.option("--every", metavar="INTERVAL", help="Tell when to check again: '2 years', '6 months', '90 days'.")
@click.option(
    "--from",
    "first",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="With --every: the day of the acceptance. Default: the day of the accepted run.",
)
@removed_option("--calendar", "--every prints the dates")
@click.option(
    "--plan",
    "is_plan",
    is_flag=True,
    help="Instead of a verdict: the repeats, nodes and hours that the criteria need, from the spread of RUN or --reference.",
)
@rare_option(
    "--power",
    callback=_share,
    metavar="SHARE",
    help="With --plan: how often a system like that run is to pass each criterion. Default: 0.95.",
)
@click.option(
    "--sequential",
    is_flag=True,
    help="Decide after each repeat of a growing run: accepted, rejected, or how many more repeats are needed.",
)
@rare_option(
    "--alpha",
    callback=_share,
    metavar="SHARE",
    help="With --sequential: how often a good system may be rejected. Default: 0.05.",
)
@rare_option(
    "--beta",
    callback=_share,
    metavar="SHARE",
    help="With --sequential: how often a bad system may be accepted. Default: 0.1.",
)
@removed_option("--boundary", "--sequential shares out its error rates after Lan and DeMets")
@rare_option(
    "--cap",
    type=click.IntRange(1),
    metavar="N",
    help="With --sequential: maximum number of repeats, chosen before the first. Default: as planned.",
)
@rare_option(
    "--bad-failure-rate",
    callback=_share,
    metavar="SHARE",
    help="With --sequential: rate of failing steps of a bad system. Default: twice the rate of the criteria.",
)
@format_options
@click.option("--schema", "print_schema", is_flag=True, help="Print the JSON schema of a criteria file, and exit.")
def command(
    run: str | None,
    base: Path | None,
    criteria: Path | None,
    reference: str | None,
    across: bool,
    recheck: float | None,
    against: str | None,
    every: str | None,
    first: datetime | None,
    is_plan: bool,
    power: float | None,
    sequential: bool,
    alpha: float | None,
    beta: float | None,
    cap: int | None,
    bad_failure_rate: float | None,
    destination: Destination,
    print_schema: bool,
) -> int:
    """Check a run, by default the latest, against acceptance criteria. Exit codes: 0 PASS, 7 FAIL, 8 INCONCLUSIVE."""
    if print_schema:
        from milabench.workflow.schemas import schema_text

        click.echo(schema_text("acceptance"), nl=False)
        return DONE
    _require_one_way(click.get_current_context().params)
    if is_plan and criteria is not None:
        power = power or DEFAULT_POWER
        code: int = seams.handler("accept --plan")(run, base, criteria, reference, power, destination)
        return code
    renderer = FORMATS[destination.format].renderer
    if recheck is not None and against is not None:
        acceptance: Acceptance = seams.handler("accept --recheck")(run, base, against, recheck, criteria)
    elif sequential and criteria is not None:
        looks = {
            "alpha": alpha or DEFAULT_ALPHA,
            "beta": beta or DEFAULT_BETA,
            "cap": cap,
            "bad_failure_rate": bad_failure_rate,
        }
        acceptance = seams.handler("accept --sequential")(run, base, criteria, reference, looks, across=across)
    else:
        from milabench.workflow.report_runs import accept_run

        assert criteria is not None
        acceptance = accept_run(run, base, criteria, reference, across=across)
    if every is not None:
        acceptance = _with_rechecks(acceptance, every, first)
    destination.write(renderer.render_acceptance(acceptance))
    if destination.output is not None:
        click.echo(acceptance.verdict, err=True)
    return VERDICT_CODES[acceptance.verdict]


def _require_one_way(given: Mapping[str, Any]) -> None:
    """Raise UsageError for options of several ways to judge, for one without the way that it belongs to, and without criteria."""
    for option, other in _GOES_WITH.items():
        if is_on_command_line(option) and not given[other]:
            raise UsageError(f"{_TYPED.get(option, f'--{option}')} goes with {_TYPED.get(other, f'--{other}')}")
    has_recheck = given["recheck"] is not None
    if given["is_plan"] and (has_recheck or given["every"] is not None or given["sequential"]):
        raise UsageError("--plan is for a run that does not exist yet: leave out --recheck, --sequential and --every")
    if given["sequential"] and has_recheck:
        raise UsageError("--sequential uses criteria, --recheck the accepted run: leave out one of them")
    if has_recheck and (given["against"] is None or is_on_command_line("reference")):
        raise UsageError("--recheck: name the accepted run, or a bundle of it, with --against (not --reference)")
    if given["criteria"] is None and not has_recheck:
        raise UsageError("missing option --criteria FILE; docs/reference/criteria.md shows such a file")


def _with_rechecks(acceptance: Acceptance, every: str, first: datetime | None) -> Acceptance:
    """Return the verdict with the dates of the next rechecks."""
    accepted_on = first or _day(acceptance.accepted_on)
    if accepted_on is None:
        raise UsageError("--every: the accepted run does not say when it began; give its day with --from 2026-11-01")
    return replace(acceptance, notes=(*acceptance.notes, seams.handler("accept --every")(every, accepted_on.date())))


def _day(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
