"""`milabench cancel`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import base_option, run_argument, terminal_session


@click.command("cancel")
@run_argument
@base_option
@click.option("--now", is_flag=True, help="Kill the running steps immediately.")
def command(run: str | None, base: Path | None, now: bool) -> None:
    """End an active run: end its running steps in order and cancel the rest. Default: the only active run."""
    from milabench.following.cancel_run import cancel_run

    cancel_run(run, base, terminal_session(), now=now)
