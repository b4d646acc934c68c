"""`milabench cleanup`: ends what dead orchestrators left on this machine: only what a journal proves to be ours."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from orchestrator.errors import DONE, STEPS_FAILED


@click.command("cleanup", help="Find the processes that dead runs below the base left, show them, and end them.")
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("-y", "--yes", is_flag=True, help="End them without asking.")
def command(base: Path | None, yes: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from orchestrator.execute.nodes import left_here, sweep_here

    markers = dead_markers(base)
    left = asyncio.run(left_here(*markers)) if markers else []
    if not left:
        click.echo("cleanup: no run below this base left a process on this machine", err=True)
        return DONE
    for pid, name in left:
        click.echo(f"{pid:>8}  {name}")
    if not yes:
        if not sys.stdin.isatty():
            click.echo(f"cleanup: {len(left)} processes were left; --yes ends them", err=True)
            return STEPS_FAILED
        click.confirm(f"end these {len(left)} processes?", abort=True, err=True)
    click.echo(f"cleanup: {asyncio.run(sweep_here(*markers))}", err=True)
    return DONE if not asyncio.run(left_here(*markers)) else STEPS_FAILED


def dead_markers(base: Path | None) -> list[str]:
    """The markers of orchestrators, of any phase, that ran on this machine since its start and live no more."""
    from orchestrator.cli.finding import all_runs, orchestrators

    return [
        each.marker
        for found in all_runs(base)
        for each in orchestrators(found.run)
        if each.is_here and each.is_of_this_boot and not each.is_alive
    ]
