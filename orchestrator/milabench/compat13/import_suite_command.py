"""`milabench import-suite`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from milabench.compat13.import_suite import ImportedBenchmark


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
    from milabench.compat13.import_suite import import_suite

    outcomes = import_suite(source, into)
    echo_outcomes(outcomes, into / "suite.yaml")
    suite = shlex.quote(str(into / "suite.yaml"))
    pin = first_verbs(outcomes)
    click.echo(f"created {into}. {'Write its locks with our versions, and show' if pin else 'Show'} its command:")
    for verb in (*pin, "plan run"):
        click.echo(f"  milabench {verb} --config {suite}")


def new_from_folder(name: str, into: Path, folder: Path) -> tuple[str, ...]:
    """Create a benchmark from a folder of milabench 1.3, print the result, and return the verbs to begin with."""
    from milabench.compat13.import_suite import import_folder

    outcomes = import_folder(name, into, folder)
    echo_outcomes(outcomes, into / name / "suite.yaml")
    return first_verbs(outcomes)


def first_verbs(outcomes: Sequence[ImportedBenchmark]) -> tuple[str, ...]:
    """Return `pin`, unless no benchmark would use its locks."""
    return () if all(outcome.is_unpinned for outcome in outcomes) else ("pin",)


def echo_outcomes(outcomes: Sequence[ImportedBenchmark], suite: Path) -> None:
    """Print a line for each benchmark, and notes on the locks that they have not."""
    width = max(len(outcome.name) for outcome in outcomes)
    for outcome in outcomes:
        click.echo(f"{outcome.name:<{width}}  {outcome}")
    if left_out := sorted({lock for outcome in outcomes for lock in outcome.left_out}):
        names = ", ".join(left_out)
        click.echo(f"note: not copied: {names}: their versions are not ours. `milabench pin` writes locks", err=True)
    if unpinned := [outcome.name for outcome in outcomes if outcome.is_unpinned]:
        click.echo(
            f"note: {', '.join(unpinned)}: installed without a lock, from requirements.in. To use those that `milabench pin` "
            f"writes, remove `install_variant: unpinned` from {suite}",
            err=True,
        )
