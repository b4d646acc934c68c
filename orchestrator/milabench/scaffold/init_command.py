"""`milabench init`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
def command(folder: Path) -> None:
    """Copy the shipped suites and benchmarks into a folder, to edit them. Default: the current folder."""
    from milabench.scaffold.new_benchmark import copy_shipped

    for path in copy_shipped(folder):
        click.echo(f"created {path}")
    click.echo(f"try it: milabench list --config {shlex.quote(str(folder / 'config' / 'quickstart.yaml'))}")
