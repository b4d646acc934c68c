"""`milabench project`."""

from __future__ import annotations

import functools

import click

from milabench.cli.formats import Destination, format_options
from milabench.cli.options import base_option, collected_as, rare_option, runs_argument
from milabench.errors import DONE
from milabench.procurement.requests import ProjectRequest

_MOST = 10**9


def counts_of(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Return `64,128` as counts, in order. Raises BadParameter."""
    counts = []
    for word in (value or "").split(",") if value is not None else ():
        text = word.strip()
        if not (text.isascii() and text.isdecimal() and 0 < int(text[:10]) <= _MOST):
            raise click.BadParameter(f"expected whole numbers above zero such as 64,128, got '{value}'", ctx, param)
        counts.append(int(text))
    return tuple(sorted(set(counts)))


@click.command(
    "project",
    epilog="Exit codes: 0: projected. 2: usage, or a count beyond 8 times the largest measured one without --bound. 3: no "
    "benchmark was measured at two counts. 6: records unreadable, or projected values given as measured ones.",
)
@runs_argument(required=True)
@base_option
@click.option(
    "--benchmark", "benchmarks", multiple=True, metavar="NAME", help="Project only this benchmark. Repeatable."
)
@click.option(
    "--to",
    callback=counts_of,
    metavar="COUNT,...",
    help="Counts to project to. Default: 2, 4 and 8 times the largest measured count.",
)
@click.option(
    "--of",
    type=click.Choice(["nodes", "devices"]),
    help="Unit of the counts. Default: nodes if the runs differ in them, else devices.",
)
@click.option(
    "--bound",
    metavar="COUNT: WHY",
    help="Project up to this count, and say who guarantees it: '1024: simulated by the vendor'. Default: 8 times the largest "
    "measured count.",
)
@rare_option("--across", is_flag=True, help="Accept counts whose arguments differ, for example for a fixed total size.")
@functools.partial(format_options, is_wide=True)
@collected_as("request", ProjectRequest)
def command(request: ProjectRequest, destination: Destination) -> int:
    """Estimate the speed of a larger system, with an interval, from runs on several counts of nodes or devices."""
    from milabench.procurement.document_formats import write_document
    from milabench.procurement.projected_runs import project_runs
    from milabench.procurement.projection_report import projection_document, projection_to_json

    study = project_runs(request)
    if destination.format == "html":
        # The page takes longer to import than text takes to write.
        from milabench.procurement.projection_page import projection_page

        destination.write(projection_page(study))
        return DONE
    value = {"projection": projection_to_json(study)}
    destination.write(write_document(destination.format, projection_document(study), value, destination.width))
    return DONE
