"""`milabench resume`: goes on with a run that was cut off or in which something failed, in its own directory."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.inputs import base_folder
from orchestrator.cli.options import display_option, effort_options


@click.command("resume", help="Go on with a run that was cut off, or run what failed in it. Default: the latest run.")
@click.argument("run", required=False)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option(
    "--force", is_flag=True, help="Go on although suite, system or environments changed; every number says `mixed`."
)
@effort_options
@display_option
def command(
    run: str | None,
    base: Path | None,
    force: bool,
    wait: bool,
    max_retries: int,
    maxfail: int | None,
    display: str,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from orchestrator.cli.carry_out import Effort
    from orchestrator.cli.unfinished import resume
    from orchestrator.events.rundir import find_run, latest_run

    folder = base_folder(base)
    found = find_run(folder, run) if run is not None else latest_run(folder)
    effort = Effort(wait=wait, max_retries=max_retries, max_failures=maxfail)
    return resume(found.path, display=display, force=force, effort=effort)
