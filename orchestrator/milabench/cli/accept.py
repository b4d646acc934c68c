"""`milabench accept`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.formats import Destination, format_options
from milabench.cli.options import base_option, file_option, run_argument
from milabench.errors import DONE, VERDICT_CODES, UsageError
from milabench.report.registry import FORMATS


@click.command("accept")
@run_argument
@base_option
@file_option("--criteria", help="Acceptance criteria (YAML); see docs/reference/criteria.md.")
@click.option(
    "--reference", metavar="RUN|FILE", help="The run, JSON report or bundle of one, that `x reference` means."
)
@format_options
@click.option("--schema", "print_schema", is_flag=True, help="Print the JSON schema of a criteria file, and exit.")
def command(
    run: str | None,
    base: Path | None,
    criteria: Path | None,
    reference: str | None,
    destination: Destination,
    print_schema: bool,
) -> int:
    """Check a run, by default the latest, against acceptance criteria. Exit codes: 0 PASS, 7 FAIL, 8 INCONCLUSIVE."""
    if print_schema:
        from milabench.workflow.schemas import schema_text

        click.echo(schema_text("acceptance"), nl=False)
        return DONE
    from milabench.workflow.report_runs import accept_run

    if criteria is None:
        raise UsageError("missing option --criteria FILE; docs/reference/criteria.md shows such a file")
    renderer = FORMATS[destination.format].renderer
    acceptance = accept_run(run, base, criteria, reference)
    destination.write(renderer.render_acceptance(acceptance))
    if destination.output is not None:
        click.echo(acceptance.verdict, err=True)
    return VERDICT_CODES[acceptance.verdict]
