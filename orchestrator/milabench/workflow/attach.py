"""What `milabench resume` does with a run whose orchestrator lives without a terminal: shows it, and tells how it ended."""

from __future__ import annotations

import sys

from milabench.analysis.run_status import run_status
from milabench.cli.run import CHANGE_THE_EXIT_CODE, print_counts
from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED
from milabench.events.rundir import Run, open_run
from milabench.execute.detach import LOG
from milabench.execute.run_lock import Orchestrator
from milabench.workflow.follow import follow


def attach_to_run(run: Run, whom: Orchestrator, *, display: str) -> int | None:
    """Show a run to its end: the exit code that `milabench run` had; None when its orchestrator died before that.

    Asked to end, it leaves only the view.
    """
    say_run_continues(run, whom)
    ending = follow(run.path, whom, display=display)
    if ending == "left":
        where = "" if whom.is_here else f" on {whom.host}"
        say(f"{run.name} goes on; `milabench resume` shows it again, `milabench cancel`{where} ends it")
        return INTERRUPTED
    if ending == "died":
        say(f"{run.name}: {whom} was gone before the run's end; its last words are in {run.path / LOG}")
        return None
    reached = run_status(open_run(run.path))
    print_counts(reached.counts, run.path)
    if reached.verdict == "interrupted":
        return INTERRUPTED
    is_whole = bool(reached.counts) and not any(name in reached.counts for name in CHANGE_THE_EXIT_CODE)
    return DONE if is_whole and reached.verdict == "passed" else STEPS_FAILED


def say_run_continues(run: Run, whom: Orchestrator) -> None:
    """Tell a person who carries a run out."""
    say(f"{run.name} is carried out by {whom}")


def say(text: str) -> None:
    """Tell a person."""
    print(f"resume: {text}", file=sys.stderr)
