"""`milabench cancel`: ends a run that is going on, in order, as Ctrl-C in its terminal would."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.errors import DONE, Unreachable

if TYPE_CHECKING:
    from milabench.execute.run_lock import Orchestrator


@click.command("cancel", help="End a run that is going on: its steps first, then the rest is cancelled.")
@click.argument("run", required=False)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("--now", is_flag=True, help="Kill the running steps at once.")
def command(run: str | None, base: Path | None, now: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.execute.run_lock import wait_for_release
    from milabench.workflow.run_lookup import active_run, resolve_run

    found = resolve_run(base, run) if run is not None else active_run(base)
    if found.holder is None:
        click.echo(f"cancel: {found.run.name} is not going on ({found.state}); there is nothing to cancel", err=True)
        return DONE
    if not found.holder.is_here:
        raise Unreachable(
            f"{found.run.name}: is carried out on another host, by {found.holder}; give `milabench cancel` there"
        )
    told = signal_process(found.holder, times=2 if now else 1)
    if told:
        click.echo(f"cancel: {found.run.name}: told {found.holder}; waiting for its end", err=True)
        wait_for_release(found.run.path)
    click.echo(f"cancel: {found.run.name} has ended; `milabench resume` goes on with it", err=True)
    return DONE


def signal_process(whom: Orchestrator, *, times: int) -> bool:
    """Signal a process that is certainly the one meant; whether it was still there. Raises Unreachable when we may not."""
    try:
        fd = os.pidfd_open(whom.pid)
    except ProcessLookupError:
        return False
    try:
        if not whom.is_alive:  # asked after it was opened: from here on the descriptor stands for it
            return False
        for _ in range(times):
            signal.pidfd_send_signal(fd, signal.SIGTERM)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise Unreachable(f"{whom}: belongs to another user; only they can end it") from None
    finally:
        os.close(fd)
    return True
