"""Shows a detached run until it ends, and returns its exit code."""

from __future__ import annotations

from milabench.analysis.run_status import run_status
from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED
from milabench.events.rundir import Run, open_run
from milabench.execute.detach import LOG
from milabench.execute.locks import Orchestrator
from milabench.workflow.follow import follow
from milabench.workflow.run_suite import CHANGE_THE_EXIT_CODE, report_counts
from milabench.workflow.session import Session


def attach_to_run(run: Run, orchestrator: Orchestrator, session: Session) -> int | None:
    """Show a run to its end: return the exit code of `milabench run`; None when its orchestrator died before that.

    Ctrl-C ends only the view, not the run.
    """
    report_active(run, orchestrator, session)
    ending = follow(run.path, orchestrator, session.reporter)
    if ending == "left":
        host = "" if orchestrator.is_local else f" on {orchestrator.host}"
        session.info(
            f"resume: {run.name} is still running; `milabench resume` shows it again, `milabench cancel`{host} ends it"
        )
        return INTERRUPTED
    if ending == "died":
        session.info(f"resume: {run.name}: {orchestrator} died before the run's end; see {run.path / LOG}")
        return None
    status = run_status(open_run(run.path))
    report_counts(status.counts, run.path, session)
    if status.verdict == "interrupted":
        return INTERRUPTED
    is_whole = bool(status.counts) and not any(name in status.counts for name in CHANGE_THE_EXIT_CODE)
    return DONE if is_whole and status.verdict == "passed" else STEPS_FAILED


def report_active(run: Run, orchestrator: Orchestrator, session: Session) -> None:
    """Report who executes a run."""
    session.info(f"resume: {run.name} is executed by {orchestrator}")
