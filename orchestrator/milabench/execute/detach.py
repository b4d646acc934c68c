"""Leaves the terminal: a process becomes two. The first continues in its own session, the second listens until it may go.

Unaware of plans: it knows a process, its output, and the run directory that the output goes to once it exists.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

from milabench.devices.regular_file import open_descriptor
from milabench.errors import RecordError, UsageError, os_reason
from milabench.execute.interrupts import WAKEUP_BYTES, interrupts, wakeup_sockets
from milabench.redaction import mask

LOG = "orchestrator.log"
"""The file in a run directory for the messages of an orchestrator without a terminal."""

_OUT, _ERR = 1, 2
_PIECE = 1 << 16
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedProcess:
    """The facts that the process in the terminal knows about the process that left.

    `run` is the directory of the run that it executes, None when it ended before that began. `code` is how it ended,
    minus the number of the signal that killed it, None while it goes on.
    """

    run: Path | None
    code: int | None


class DetachHandover:
    """Ties the process that left to the process that stayed, which prints all its output, until it lets go."""

    def __init__(self, output_fd: int, word: int) -> None:
        self._output_fd = output_fd
        self._word: int | None = word
        self._voice = _Voice((output_fd,))
        sys.stderr = cast(TextIO, self._voice)

    @property
    def is_held(self) -> bool:
        """Whether somebody still listens in the terminal."""
        return self._word is not None

    def hold(self, run: Path) -> None:
        """Copy all output, also of child processes, to this run directory from now on.

        Raises RecordError when it cannot be written.
        """
        try:
            log = open_descriptor(run / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise RecordError(f"{run / LOG}: cannot be written: {os_reason(error)}") from None
        _redirect(log, _OUT, _ERR)
        self._voice.ends = (_ERR, self._output_fd) if self.is_held else (_ERR,)

    def let_go(self, run: Path) -> None:
        """Detach from the terminal: the run continues without a listener."""
        if self._word is None:
            return
        with contextlib.suppress(OSError):  # whoever listened may be gone
            os.write(self._word, os.fsencode(run))
        self._voice.ends = (_ERR,)
        for end in (self._word, self._output_fd):
            os.close(end)
        self._word = None


class _Voice(io.TextIOBase):
    """A standard error with several destinations, or none: writing to it never ends a run."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, ends: Sequence[int]) -> None:
        self.ends = ends

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        content = mask(text).encode("utf-8", "backslashreplace")
        for end in self.ends:
            with contextlib.suppress(OSError):
                _write(end, content)
        return len(text)


def fork_detached() -> DetachHandover | DetachedProcess:
    """Fork: return the DetachHandover in the child, and in the parent, at its end, the DetachedProcess.

    Until the child lets go, or ends, the parent forwards the child's output, and signals to the child: SIGINT and SIGTERM
    end both. A hangup of the terminal ends neither. Raises UsageError when a thread does not end: a fork would kill it.
    """
    _join_threads()
    (output_fd, says), (word, gives) = os.pipe(), os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with interrupts().deferred():
        # Before the fork: a hangup after it would otherwise end the parent, and with it the child.
        interrupts().ignore_hangup()
        pid = os.fork()
        if pid:
            for end in (says, gives):
                os.close(end)
            return _listen(pid, output_fd, word)
        os.setsid()  # from here on, neither a hangup nor Ctrl-C of the terminal reaches the child
        for end in (output_fd, word):
            os.close(end)
        _redirect(os.open(os.devnull, os.O_RDONLY), 0)
        for end in (_OUT, _ERR):
            os.dup2(says, end)
        return DetachHandover(says, gives)


def _join_threads() -> None:
    """Wait for threads that are about to end: after a fork, only their locks would exist in the child."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(_PATIENCE_S if thread.daemon else None)
            if thread.is_alive():
                raise UsageError(f"--detach: the thread {thread.name} of this Python does not end. Use nohup instead")


def _listen(pid: int, output_fd: int, word: int) -> DetachedProcess:
    """Print the child's output until it lets go or ends. When interrupted, wait for its end."""
    interrupts_seen: list[None] = []

    def pass_on() -> None:
        interrupts_seen.append(None)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    with interrupts().routed_to(pass_on), wakeup_sockets() as (woken, _):
        while True:
            ready = select.select((output_fd, word, woken.fileno()), (), ())[0]
            if woken.fileno() in ready:
                woken.recv(WAKEUP_BYTES)
            if not (output_fd in ready and _copy_output(output_fd)) and word in ready:
                break
        os.set_blocking(output_fd, False)
        while _copy_output(output_fd):
            pass
        run = os.read(word, _PIECE)
        where = Path(os.fsdecode(run)) if run else None
        if where is not None and not interrupts_seen:
            return DetachedProcess(run=where, code=None)
        return DetachedProcess(run=where, code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _copy_output(output_fd: int) -> bool:
    """Copy a piece of the child's output to the terminal. Return whether any came."""
    try:
        piece = os.read(output_fd, _PIECE)
    except BlockingIOError:
        return False
    with contextlib.suppress(OSError):  # the terminal may be gone
        _write(_ERR, piece)
    return bool(piece)


def _redirect(fd: int, *places: int) -> None:
    """Redirect these descriptors to a file, for child processes too."""
    for target in places:
        os.dup2(fd, target)
    if fd not in places:
        os.close(fd)


def _write(end: int, content: bytes) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(end, remaining) :]
