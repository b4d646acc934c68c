"""`milabench baseline`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from milabench.cli.options import base_option, file_option, runs_argument, terminal_session


@click.command("baseline")
@runs_argument(required=True)
@base_option
@file_option("-o", "--output", required=True, help="The baseline's file.")
@click.option("--json", "as_json", is_flag=True, help="Print the baseline as JSON too.")
def command(runs: tuple[str, ...], base: Path | None, output: Path, as_json: bool) -> None:
    """Compute the expected numbers of nodes and devices, from these runs."""
    from milabench.fleet.fleet_runs import compute_baseline

    expected = compute_baseline(runs, base, output, terminal_session())
    if as_json:
        click.echo(json.dumps(expected.to_json(), indent=1))
