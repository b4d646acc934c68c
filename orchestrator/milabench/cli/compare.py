"""`milabench compare`."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import click

from milabench import seams
from milabench.cli.formats import Destination, screen_options
from milabench.cli.options import (
    base_option,
    collected_as,
    file_option,
    fraction_in,
    rare_option,
    runs_argument,
    same_command,
    terminal_session,
    validations_option,
)
from milabench.errors import UsageError
from milabench.workflow.options import CompareRequest

# The names of procurement/scores.METRICS, which the help must not wait for.
SCORE_METRICS = ("ssi", "ssni", "ssp", "throughput", "index")


class _Metric(click.Choice[str]):
    """The name of a score. A removed name is answered with its replacement."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in {"specspeed", "specrate"}:
            raise UsageError(f"--metric {value} was removed. --metric index is the same mean of ratios")
        return super().convert(value, param, ctx)


metric_option = click.option("--metric", type=_Metric(SCORE_METRICS), help="The score, instead of the tender's own.")


def margin_of(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Return `1%` or `0.01` as a fraction above 0 and at most 1. Raises BadParameter."""
    margin = fraction_in(value)
    if math.isnan(margin):
        raise click.BadParameter(f"expected a share such as 1% or 0.01, got '{value}'", ctx, param)
    if not 0 < margin <= 1:
        raise click.BadParameter(f"expected more than 0 and at most 100%, got '{value}'", ctx, param)
    return margin


margin_option = click.option(
    "--margin",
    callback=margin_of,
    default="1%",
    show_default=True,
    metavar="MARGIN",
    help="Relative difference below which nothing is called faster or slower.",
)


@click.command(
    "compare",
    epilog="Exit codes: 0: compared. 1: a benchmark, the index, a point of a curve or an offer is SLOWER, a benchmark failed "
    "that passed on the first system, or an offer is not admissible. 2: usage, or mistakes in a tender or an offer. 3: nothing "
    "in common. 6: records unreadable.",
)
@runs_argument(required=True)
@base_option
@functools.partial(screen_options, has_workbook=True)
@click.option("--why", is_flag=True, help="List the differences between the systems, the likeliest causes first.")
@margin_option
@rare_option(
    "--per",
    type=click.Choice(["system", "instance"]),
    default="system",
    show_default=True,
    help="Compare all instances together, or a single instance (a device, a job).",
)
@rare_option("--across", is_flag=True, help="Compare also benchmarks whose arguments differ.")
@file_option(
    "--weights",
    rare=True,
    metavar="NAME|FILE",
    help="Weights instead of the suites': a profile (training, inference, science, machine), or a file by benchmark, with"
    " declared work (YAML).",
)
@file_option(
    "--costs",
    rare=True,
    metavar="FILE",
    help="Price, years, power_W, pue, electricity, currency, for all or by system (YAML), instead of the system files'.",
)
@file_option(
    "--tender",
    metavar="FILE",
    help="Score runs and offers (offer.yaml) by the rules of this tender (procurement.yaml). See docs/procurement.md.",
)
@metric_option
@validations_option
@collected_as("request", CompareRequest)
def command(request: CompareRequest, destination: Destination, tender: Path | None, metric: str | None) -> int:
    """Compare runs, JSON reports or bundles with the first. `A1,A2,A3` are several runs of a system."""
    if tender is not None:
        code: int = seams.handler("compare --tender")(request, destination, tender, metric)
        return code
    if metric is not None:
        raise UsageError(f"--metric {metric} needs the tender that says how: give it with --tender procurement.yaml")
    from milabench.workflow.report_runs import compare_runs, comparison_exit_code

    compared = compare_runs(request, terminal_session(), "text" if destination.is_workbook else destination.format)
    if destination.is_workbook:
        destination.write(seams.handler("--format xlsx").render_comparison(compared.comparison))
    else:
        destination.write_pieces(compared.pieces(destination.shown, destination.width))
    if destination.is_brief:
        from milabench.report.decision_screens import comparison_next

        click.echo(f"\nnext: {comparison_next(compared.comparison, same_command(), request.base)}")
    return comparison_exit_code(compared.comparison)
