"""`milabench resume`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from milabench import seams
from milabench.cli.options import (
    base_option,
    detach_option,
    display_option,
    retry_options,
    run_argument,
    terminal_session,
)
from milabench.errors import DONE
from milabench.execute.retry_policy import RetryPolicy


@click.command("resume")
@run_argument
@base_option
@click.option(
    "--force",
    is_flag=True,
    help="Resume despite a changed suite, system or environment. Every number is marked `mixed`.",
)
@retry_options
@detach_option
@display_option
def command(run: str | None, base: Path | None, force: bool, retry: RetryPolicy, detach: bool, display: str) -> int:
    """Resume an incomplete run, or rerun its failed steps. Default: the latest run."""
    from milabench.workflow.run_lookup import resolve_run

    session = terminal_session(display)
    handle = resolve_run(base, run)
    resumed, holder = handle.run, handle.holder
    if holder is not None and (holder.detached or resumed.shares):
        session.info(f"resume: {resumed.name} is executed by {holder}")
        if detach:
            return DONE
        code: int | None = seams.handler("attach to a run")(resumed, holder, session)
        if code is not None:
            return code
    if resumed.shares:
        ended: int = seams.handler("jobs of a run").resume_jobs(resumed.path, session, force=force, detach=detach)
        return ended
    from milabench.workflow.detach import run_detachable
    from milabench.workflow.resume_run import resume_run

    work = partial(resume_run, resumed.path, session, force=force, retry=retry)
    return run_detachable("resume", work, session, detach=detach)
