"""The pipe to the relay that started a program: where a process asks that the program be ended."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from benchmate.records import encode

RELAY = "MILABENCH_RELAY"
"""Holds the inode of the relay's pipe, and the path by which a process opens it whose launcher has closed its descriptors."""


def variables(pipe: int) -> dict[str, str]:
    """Return a relay's variables for its program about the pipe that it reads from."""
    return {RELAY: f"{os.fstat(pipe).st_ino}:/proc/{os.getpid()}/fd/{pipe}"}


def find_relay(environ: Mapping[str, str]) -> str | None:
    """Return the path of the relay's pipe. None without a relay, or where it cannot be reached (in a container, say)."""
    inode, _, path = environ.get(RELAY, "").partition(":")
    # The number of a process, or of a descriptor, may belong to another one by now.
    with contextlib.suppress(OSError, ValueError):
        status = Path(path).stat()
        if stat.S_ISFIFO(status.st_mode) and str(status.st_ino) == inode:
            return path
    return None


def ask_to_end(path: str, reason: str) -> bool:
    """Ask the relay to end the program, which has all that it wanted. Return whether it was asked."""
    line = encode({"$event": "stop", "$data": reason}) + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.write(descriptor, line) == len(line)
        finally:
            os.close(descriptor)
    except OSError:  # the pipe is full just now, or its relay is gone
        return False
