"""`milabench gc processes`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from milabench.cli.options import base_option, terminal_session
from milabench.errors import DONE, STEPS_FAILED, UNREACHABLE
from milabench.shown import visible_line


@click.command("gc processes")
@base_option
@click.option("-y", "--yes", is_flag=True, help="Kill them without asking.")
@click.option("--only-here", is_flag=True, help="Leave out the other nodes that these runs used.")
def command(base: Path | None, yes: bool, only_here: bool) -> int:
    """Find the processes left by crashed runs below the base, show them, and kill them."""
    from milabench.garbage.left_processes import find_orphans, kill_orphans

    session = terminal_session()
    orphans = find_orphans(base, session, is_local_only=only_here)
    for error in orphans.unknown:
        session.error(str(error))
    if not orphans.count:
        where = "the machines that answered" if any(orphans.markers) else "this machine"
        session.info(f"gc: no run below this base left a process on {where}")
        return UNREACHABLE if orphans.unknown else DONE
    for machine, processes in orphans.processes.items():
        where = f"on {machine.name} ({machine.shown}): " if machine else ""
        for pid, name in processes:
            click.echo(f"{pid:>8}  {where}{visible_line(name)}")
    for allocation in orphans.jobs:
        click.echo(
            visible_line(f"job {allocation.job} still holds {', '.join(allocation.nodes)} for {allocation.run.name}")
        )
    for request in orphans.requests:
        click.echo(visible_line(str(request)))
    if not yes:
        # Nobody can answer: a script that means it says --yes.
        if not sys.stdin.isatty():
            session.info(f"gc: {orphans.text} were left. --yes kills them")
            return STEPS_FAILED
        click.confirm(f"kill these {orphans.text}?", abort=True, err=True)
    if not kill_orphans(orphans, session):
        return STEPS_FAILED
    return UNREACHABLE if orphans.unknown else DONE
