"""Starts this machine's agent as a process, which can be done before the event loop that will talk to it is imported."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from milabench.errors import Unreachable
from milabench.facts.model import Device, Node
from milabench.facts.probe import agent_command, parse_facts, this_machine

RUN_MARKER = "MILABENCH_RUN_MARKER"  # the agent's name for it
GRACE_S = 5.0
LEAVE_S = 15.0
PATIENCE_S = 1.0


class LocalAgent:
    """An agent of this machine. The end of its input ends its lease. An event loop takes it over, or it has to `leave`.

    `run_id` marks every process of the run. An agent that `describes` the machine sends the answer of `facts` first. Raises
    Unreachable when it cannot be started.
    """

    def __init__(
        self,
        name: str,
        run_id: str,
        *,
        grace_s: float = GRACE_S,
        locks: Path | None = None,
        describes: bool = False,
    ) -> None:
        self.run_id = run_id
        words = ["serve", "--run-id", run_id, "--grace", str(grace_s), *(["--locks", str(locks)] if locks else [])]
        words += ["--first", "facts"] if describes else []
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

    @cached_property
    def _facts(self) -> Mapping[str, object] | None:
        """Its first message. None where it has ended instead."""
        output = self._process.stdout
        assert output is not None
        header = output.readline()
        missing = json.loads(header)["n"] if header else 0
        pieces = []
        # The pipe has no buffer here, for the event loop reads what comes next: a reading may be short.
        while missing and (piece := output.read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return json.loads(b"".join(pieces)) if pieces and not missing else None

    def answer(self) -> Node:
        """Return the facts of this machine, by an agent that describes it. Raises Unreachable when none can."""
        # One that could not left the reason on our standard error; another is asked for it.
        return this_machine().answer() if self._facts is None else parse_facts(self._facts)

    def take_over(self) -> subprocess.Popen[bytes]:
        """Return the process, which is the caller's from now on."""
        self._is_taken_over = True
        return self._process

    def leave(self) -> None:
        """End the lease of an agent that nobody has taken over, and wait for its end."""
        if self._is_taken_over:
            return
        try:
            self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            # It still asks a driver what there is, and hears nothing meanwhile. It has nothing to leave behind.
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=LEAVE_S)


def new_marker(name: str) -> str:
    """Return a new mark for the processes of an orchestrator. It begins with the name of its run."""
    return f"{name}-{os.urandom(4).hex()}"


def device_lock(device: Device, host: str) -> str:
    """Return the name of a device's lock. Slots of a processor share a lock."""
    # The UUID, not the index: containers and CUDA_VISIBLE_DEVICES number the same device differently.
    return f"cpu-{host}" if device.arch == "cpu" else f"{device.arch}-{device.uuid}"


def lock_folder() -> Path | None:
    """Return a folder for device locks other than the one that all runs of a machine share: for tests, which run concurrently."""
    return Path(os.environ["MILABENCH_LOCK_DIR"]) if "MILABENCH_LOCK_DIR" in os.environ else None
