"""What `--detach` does: the rest of a command goes on without its terminal, and what it says until then is told there."""

from __future__ import annotations

import sys
from collections.abc import Callable

from milabench.errors import DONE, Unreachable
from milabench.execute.detach import DetachedProcess, DetachHandover, fork_detached
from milabench.workflow.remote_nodes import host_pool


def run_detached(verb: str, work: Callable[[DetachHandover], int]) -> int:
    """The exit code of `work`, which is carried out without the terminal; in that, of what came before its run began."""
    host_pool().close()  # connections to nodes, and the loop in which they live, can be those of one process only
    side = fork_detached()
    if isinstance(side, DetachHandover):
        return work(side)
    return report_detached(verb, side)


def report_detached(verb: str, parted: DetachedProcess) -> int:
    """Say that a run goes on, and what may be done with it; else how it ended. Raises Unreachable when it was killed."""
    name = "" if parted.run is None else parted.run.name
    match parted.code:
        case None:
            print(
                f"{verb}: {name} goes on without this terminal: `milabench status` tells how far it is, `logs -f STEP` what"
                " a step says, `resume` shows it to its end, `cancel` ends it",
                file=sys.stderr,
            )
            return DONE
        case code if code < 0:
            began = f"it had begun {name}, with which `milabench resume` goes on" if name else "no run had begun"
            raise Unreachable(f"the process that left the terminal was killed by signal {-code}; {began}")
        case code:
            if name:  # it was asked to end, and what it said of that is in its log
                print(f"{verb}: {name} was ended; `milabench resume` goes on with it", file=sys.stderr)
            return code
