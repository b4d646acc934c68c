"""Continues a command without its terminal. The terminal shows its messages until the run has begun."""

from __future__ import annotations

from collections.abc import Callable

from milabench.errors import DONE, Unreachable
from milabench.execute.detach import DetachedProcess, DetachHandover, fork_detached
from milabench.workflow.options import Session


def run_detachable(verb: str, work: Callable[[DetachHandover | None], int], session: Session, *, detach: bool) -> int:
    """Return the exit code of `work`.

    `detach`: it runs without the terminal. In the terminal, return 0 once its run has begun.
    """
    if not detach:
        return work(None)
    session.disconnect()  # connections to nodes, and the loop in which they live, can belong to one process only
    held = session.allocation
    if held is not None:
        held.rest()  # so can the thread that claims its nodes
    process = fork_detached()
    if isinstance(process, DetachHandover):
        if held is not None:
            held.go_on()
        return work(process)
    session.allocation = None  # it belongs to the other process now, which gives it back
    return report_detached(verb, process, session)


def report_detached(verb: str, process: DetachedProcess, session: Session) -> int:
    """Report that a run goes on, with the commands that control it. Else how it ended. Raises Unreachable when it was killed."""
    name = "" if process.run is None else process.run.name
    match process.code:
        case None:
            session.info(
                f"{verb}: {name} continues without this terminal: `milabench status` shows its progress, `logs -f STEP`"
                " a step's output, `resume` shows it to its end, `cancel` ends it"
            )
            return DONE
        case code if code < 0:
            began = f"`milabench resume` continues {name}" if name else "No run had begun"
            raise Unreachable(f"the process that left the terminal was killed by signal {-code}. {began}")
        case code:
            if name:  # it was asked to end, and its messages are in its log
                session.info(f"{verb}: {name} was ended. `milabench resume` continues it")
            return code
