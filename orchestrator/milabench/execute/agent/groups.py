"""The monitor of a group of steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, List

from .procfs import read_process
from .protocol import RUN_MARKER, TAIL_CHARACTERS

if TYPE_CHECKING:
    from .step import Step
    from .supervisor import Agent


class Monitor:
    """The process that watches a group of steps from outside and tells each its readings over its sink.

    It is no member of any step: it neither keeps one alive nor counts as its sign of life. Raises OSError when it
    cannot be started.
    """

    def __init__(self, agent: "Agent", group: str, argv: List[str], steps: List[Step]) -> None:
        self.group = group
        self.is_over = False
        import tempfile  # with hashlib it takes 6 ms, for which no step waits here

        self._words = tempfile.TemporaryFile(dir=agent.folder)
        about = [
            dict(step.monitor.get("about") or {}, step=step.id, pid=step.pid, sink="unix:%s/sink" % step.folder)
            for step in steps
        ]
        env = dict(os.environ)
        env[RUN_MARKER] = agent.run_id
        # In the agent's own folder: a file of simulated devices may be named relative to where the command was given.
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._words,
            start_new_session=True,
            preexec_fn=agent.before_exec,  # noqa: PLW1509 - there are no threads here
        )
        self.pid = process.pid
        process.returncode = 0  # reaped by the agent
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"steps": about}).encode())
            process.stdin.close()
        except OSError:
            pass  # it has ended already, and says why

    def kill(self) -> None:
        """Ends it, should it still be there."""
        now = read_process(self.pid)
        if now is not None and now.parent == os.getpid():
            now.signal(signal.SIGKILL)

    def close(self) -> str:
        """The last line that it said on stderr."""
        self._words.seek(0)
        lines = self._words.read(1 << 16).decode("utf-8", "backslashreplace").strip().splitlines()
        self._words.close()
        return lines[-1][:TAIL_CHARACTERS] if lines else ""


def is_ready(step: Step) -> bool:
    """Whether as many of its processes are ready as there are ranks."""
    ranks = [connection for connection in step.connections if connection.role != "monitor"]
    world = max((connection.world_size for connection in ranks), default=1)
    return sum(connection.is_ready for connection in ranks) >= world
