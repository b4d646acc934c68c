"""Processes of the agent outside steps: monitors, and calls that could hang: a driver, a container engine, a lock."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from .event_loop import READ_BYTES, EventLoop
from .procfs import read_process

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")


def verb_command(*words: str) -> list[str]:
    """Return the command that carries out a verb of the agent in a process of its own."""
    return [sys.executable, "-I", "-S", PROGRAM, *words]


class HelperProcesses:
    """The running helper processes. `before_exec` prepares each child, after fork. The agent reaps it and calls `note_exit`."""

    def __init__(self, loop: EventLoop, before_exec: Callable[[], None]) -> None:
        self._loop = loop
        self._before_exec = before_exec
        self._running: dict[int, tuple[int, bytearray, Callable[[int, bytes], None]]] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self._running

    def start(
        self,
        command: list[str],
        done: Callable[[int, bytes], None],
        message: bytes = b"",
        stderr: int | None = None,
        descriptors: Sequence[int] = (),
        env: dict[str, str] | None = None,
    ) -> int:
        """Start a command, in a session of its own. Return its pid.

        It reads `message` on its standard input. `done` is called with its exit code and its output. `stderr` is
        as in subprocess: with None, our own.
        """
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE if message else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            pass_fds=descriptors,
            preexec_fn=self._before_exec,  # noqa: PLW1509 - there are no threads here
        )
        process.returncode = 0  # reaped by us: Popen would warn, and wait in its destructor
        if process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended already, and says why
                process.stdin.write(message)
                process.stdin.close()
        assert process.stdout is not None
        # A duplicate: Popen closes its own when it is collected, and the number would be another's.
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
        with contextlib.suppress(BlockingIOError):  # somebody else has its output open still
            for data in iter(lambda: os.read(fd, READ_BYTES), b""):
                output.extend(data)
        os.close(fd)
        done(code, bytes(output))

    def kill(self, pid: int) -> None:
        """End a process that is still there. `done` is called as ever."""
        process = read_process(pid) if pid in self._running else None
        if process is not None:
            process.signal(signal.SIGKILL)
