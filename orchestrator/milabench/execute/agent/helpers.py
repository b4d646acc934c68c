"""Processes that belong to no step and answer queries that could hang: of a driver, a container engine, a lock."""

from __future__ import annotations

import os
import subprocess
from typing import Callable, Dict, List, Optional, Tuple

from .event_loop import READ_BYTES, EventLoop


class HelperProcesses:
    """The running helper processes. `before_exec` prepares each child, after fork; the agent reaps it and calls `note_exit`."""

    def __init__(self, loop: EventLoop, before_exec: Callable[[], None]) -> None:
        self._loop = loop
        self._before_exec = before_exec
        self._running: Dict[int, Tuple[int, bytearray, Callable[[int, bytes], None]]] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self._running

    def start(
        self,
        command: List[str],
        done: Callable[[int, bytes], None],
        descriptors: Optional[List[int]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> int:
        """Start a command; return its pid. `done` is called with its exit code and what it printed."""
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if env is not None else None,
            pass_fds=descriptors or (),
            preexec_fn=self._before_exec,  # noqa: PLW1509 - there are no threads here
        )
        process.returncode = 0  # reaped by us
        assert process.stdout is not None
        fd = os.dup(process.stdout.fileno())
        process.stdout.close()
        output = bytearray()
        self._running[process.pid] = (fd, output, done)

        def read(_: int) -> None:
            data = os.read(fd, READ_BYTES)
            output.extend(data)
            if not data:
                self._loop.forget(fd)

        self._loop.on_readable(fd, read)
        return process.pid

    def note_exit(self, pid: int, code: int) -> None:
        """Read the rest of its output, and call its `done`."""
        fd, output, done = self._running.pop(pid)
        self._loop.forget(fd)
        os.set_blocking(fd, False)
        try:
            while True:
                data = os.read(fd, READ_BYTES)
                if not data:
                    break
                output.extend(data)
        except BlockingIOError:
            pass
        os.close(fd)
        done(code, bytes(output))
