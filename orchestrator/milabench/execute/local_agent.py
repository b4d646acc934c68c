"""Starts this machine's agent as a process, which can be done before the event loop that will talk to it is imported."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from milabench.errors import Unreachable
from milabench.facts.probe import agent_command

RUN_MARKER = "MILABENCH_RUN_MARKER"  # the agent's name for it
GRACE_S = 5.0
LEAVE_S = 15.0


class LocalAgent:
    """An agent of this machine; the end of its input ends its lease. An event loop takes it over, or it has to `leave`.

    `run_id` marks every process of the run. Raises Unreachable when it cannot be started.
    """

    def __init__(self, name: str, run_id: str, *, grace_s: float = GRACE_S, locks: Path | None = None) -> None:
        words = ["serve", "--run-id", run_id, "--grace", str(grace_s), *(["--locks", str(locks)] if locks else [])]
        try:
            # A session of its own: Ctrl-C must reach only this process, which ends the steps in order.
            self._process = subprocess.Popen(
                agent_command(*words),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, RUN_MARKER: run_id},  # so that a sweep finds a hanging agent, as it finds its steps
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(f"{name}: the agent cannot be started: {error}") from None
        self._is_taken_over = False

    def take_over(self) -> subprocess.Popen[bytes]:
        """Return the process, which is the caller's from now on."""
        self._is_taken_over = True
        return self._process

    def leave(self) -> None:
        """End the lease of an agent that nobody has taken over, and wait for its end."""
        if self._is_taken_over:
            return
        with contextlib.suppress(subprocess.TimeoutExpired), contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=LEAVE_S)
