"""`milabench replay`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import TerminalReporter, base_option, display_option, run_argument


@click.command("replay")
@run_argument
@base_option
@click.option("--speed", type=click.FloatRange(0), default=10.0, show_default=True, help="Playback speed. 0: no delay.")
@click.option("-v", "--verbose", is_flag=True, help="Show the output of the steps, too.")
@display_option
def command(run: str | None, base: Path | None, speed: float, verbose: bool, display: str) -> None:
    """Replay a recorded run. Default: the latest run."""
    from milabench.following.run_view import replay_run
    from milabench.workflow.run_lookup import resolve_run

    replay_run(resolve_run(base, run).run, TerminalReporter(display), speed=speed, is_verbose=verbose)
