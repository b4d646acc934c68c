"""Lets an agent ask a process for the stacks of its threads, also if its main thread never comes back from C.

Python's faulthandler writes them in the signal handler: without the GIL, and without the permission to trace a process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

DUMP_SIGNAL = 59
"""The agent's collector sends it (milabench.hangs.on_node.python_stacks), to a process with such a file only."""


def dump_stacks_on_signal(folder: Path | None) -> None:
    """Write all stacks to a file of the folder at each DUMP_SIGNAL. A forked child writes to a file of its own.

    Without a folder, or where the program handles that signal itself, do nothing.
    """
    if folder is None or signal.getsignal(DUMP_SIGNAL) is not signal.SIG_DFL:
        return
    _register(folder)
    os.register_at_fork(after_in_child=lambda: _register(folder))


def _register(folder: Path) -> None:
    """Open the file `<pid>-<random>.<descriptor>.stacks`: by it the agent sees that the descriptor is still that file."""
    with contextlib.suppress(OSError, AttributeError, RuntimeError, ValueError):
        import faulthandler

        path = folder / f"{os.getpid()}-{os.urandom(6).hex()}.stacks"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        path.rename(path.with_suffix(f".{descriptor}.stacks"))
        faulthandler.register(DUMP_SIGNAL, file=descriptor, all_threads=True)
