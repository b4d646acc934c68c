"""`milabench resume`: goes on with a run that was cut off or in which something failed, in its own directory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from milabench.cli.options import detach_option, display_option, effort_options
from milabench.errors import DONE
from milabench.workflow.context import base_folder


@click.command("resume", help="Go on with a run that was cut off, or run what failed in it. Default: the latest run.")
@click.argument("run", required=False)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option(
    "--force", is_flag=True, help="Go on although suite, system or environments changed; every number says `mixed`."
)
@effort_options
@detach_option
@display_option
def command(
    run: str | None,
    base: Path | None,
    force: bool,
    wait: bool,
    max_retries: int,
    maxfail: int | None,
    detach: bool,
    display: str,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.events.rundir import find_run, latest_run
    from milabench.execute.run_lock import holder_of

    folder = base_folder(base)
    found = find_run(folder, run) if run is not None else latest_run(folder)
    holder = holder_of(found.path)
    if holder is not None and holder.detached:
        from milabench.workflow.attach import attach_to_run, say_run_continues

        if detach:
            say_run_continues(found, holder)
            return DONE
        code = attach_to_run(found, holder, display=display)
        if code is not None:
            return code
    from milabench.workflow.execution import RetryPolicy
    from milabench.workflow.resume_run import resume_run

    go_on = partial(
        resume_run,
        found.path,
        display=display,
        force=force,
        effort=RetryPolicy(wait=wait, max_retries=max_retries, max_failures=maxfail),
    )
    if detach:
        from milabench.workflow.detach import run_detached

        return run_detached("resume", go_on)
    return go_on()
