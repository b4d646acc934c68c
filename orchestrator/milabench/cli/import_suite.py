"""`milabench import-suite`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from milabench.workflow.import_suite import ImportedBenchmark


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

    echo_outcomes(import_suite(source, into))
    suite = shlex.quote(str(into / "suite.yaml"))
    click.echo(f"created {into}; write its locks with our versions, and see what it starts:")
    for verb in ("pin", "plan run"):
        click.echo(f"  milabench {verb} --config {suite}")


def echo_outcomes(outcomes: Sequence[ImportedBenchmark]) -> None:
    """Print a line for each benchmark."""
    width = max(len(outcome.name) for outcome in outcomes)
    for outcome in outcomes:
        click.echo(f"{outcome.name:<{width}}  {outcome}")
