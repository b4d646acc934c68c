"""Runs a server and starts it again whenever it ends: `python -m benchmate.serving.restarting -- COMMAND ...`.

TERM and Ctrl-C go to the server, with which this ends. Leftover processes are killed.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from benchmate.supervisor import adopt_orphans, kill_strays

SHORTEST_S = 1.0
"""A command that cannot run is not started more often than once in this time."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command until a signal ends this. Return the exit code."""
    command = list(sys.argv[1:] if argv is None else argv)
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        print("error: expected a command: python -m benchmate.serving.restarting -- COMMAND ...", file=sys.stderr)
        return 2
    adopt_orphans()
    return _Restarting(command).run()


class _Restarting:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._ended_by: int | None = None

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        while self._ended_by is None:
            began = time.monotonic()
            try:
                self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
            except OSError as error:
                print(f"error: {self._command[0]}: {error.strerror or error}", file=sys.stderr)
                return 127
            if self._ended_by is not None:
                # It came between the look above and the start.
                self._process.terminate()
            code = self._process.wait()
            # Its workers hold devices and ports that the next one needs.
            kill_strays(set())
            if self._ended_by is None:
                print(f"the server ended with exit code {code}. It is started again", file=sys.stderr, flush=True)
                time.sleep(max(0.0, SHORTEST_S - (time.monotonic() - began)))
        return 128 + self._ended_by

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ended_by = number
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


if __name__ == "__main__":
    sys.exit(main())
