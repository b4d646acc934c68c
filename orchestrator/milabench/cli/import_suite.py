"""`milabench import-suite`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command("import-suite")
@click.argument("source", metavar="SUITE.yaml|FOLDER", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder to create, with suite.yaml and benchmarks/.",
)
def command(source: Path, into: Path) -> None:
    """Turn benchmarks of milabench 1.3 into benchmarks of ours.

    From a suite with the folders that it names, or from a folder that is or holds benchmarks. Nothing there is changed.
    """
    from milabench.workflow.import_suite import import_suite

    outcomes = import_suite(source, into)
    width = max(len(outcome.name) for outcome in outcomes)
    for outcome in outcomes:
        click.echo(f"{outcome.name:<{width}}  {outcome}")
    click.echo(f"created {into}; see what it starts:")
    click.echo(f"  milabench plan run --config {shlex.quote(str(into / 'suite.yaml'))}")
