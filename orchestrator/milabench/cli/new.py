"""`milabench new`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("new")
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("benchmarks"),
    show_default=True,
    help="Parent of the benchmark's folder.",
)
def command(name: str, into: Path) -> None:
    """Create a benchmark from a template, which runs as it is, for you to edit."""
    from milabench.workflow.new_benchmark import create_benchmark

    folder = create_benchmark(name, into)
    click.echo(f"created {folder}; try it:")
    for verb in ("install", "prepare", "run"):
        click.echo(f"  milabench {verb} --config {folder / 'suite.yaml'}")
    click.echo("  milabench report")
    click.echo(f"after a change of its requirements.in: milabench pin --config {folder / 'suite.yaml'}")
