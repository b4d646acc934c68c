"""`milabench cleanup`: ends what dead orchestrators left, here and on other nodes: only what a journal proves to be ours."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from milabench.errors import DONE, STEPS_FAILED, UNREACHABLE, Unreachable


@click.command("cleanup", help="Find the processes that dead runs below the base left, show them, and end them.")
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("-y", "--yes", is_flag=True, help="End them without asking.")
@click.option("--only-here", is_flag=True, help="Leave out the other nodes that these runs used.")
def command(base: Path | None, yes: bool, only_here: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.execute.agent_client import left_here, sweep_here
    from milabench.execute.interrupts import run_deferring_signals
    from milabench.workflow.orphans import dead, left_there, marked_here, marked_there, sweep_there
    from milabench.workflow.run_lookup import all_runs

    gone = [each for found in all_runs(base) for each in dead(found.run)]
    markers, marked = marked_here(gone), {} if only_here else marked_there(gone)
    here = run_deferring_signals(lambda: left_here(*markers)) if markers else []
    there = left_there(marked)
    unknown = [each for each in there.values() if isinstance(each, Unreachable)]
    for error in unknown:
        click.echo(f"error: {error}", err=True)
    left = {address: each for address, each in there.items() if not isinstance(each, Unreachable) and each}
    count = len(here) + sum(map(len, left.values()))
    if not count:
        where = "on this machine" if not marked else "on the machines that it could ask"
        click.echo(f"cleanup: no run below this base left a process {where}", err=True)
        return UNREACHABLE if unknown else DONE
    for pid, name in here:
        click.echo(f"{pid:>8}  {name}")
    for address, processes in left.items():
        for pid, name in processes:
            click.echo(f"{pid:>8}  on {address.name} ({address.shown}): {name}")
    if not yes:
        if not sys.stdin.isatty():
            click.echo(f"cleanup: {count} processes were left; --yes ends them", err=True)
            return STEPS_FAILED
        click.confirm(f"end these {count} processes?", abort=True, err=True)
    if here:
        click.echo(f"cleanup: {run_deferring_signals(lambda: sweep_here(*markers))}", err=True)
    todo = {address: marked[address] for address in left}
    for address, said in sweep_there(todo).items():
        click.echo(f"cleanup: {address.name}: {said}", err=True)
    still = [each for each in left_there(todo).values() if each]
    if still or (here and run_deferring_signals(lambda: left_here(*markers))):
        return STEPS_FAILED
    return UNREACHABLE if unknown else DONE
