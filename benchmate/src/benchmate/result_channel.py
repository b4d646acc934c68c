"""The child's side of a supervised process: it dies with its supervisor and sends a single result over a private pipe.

Imports the standard library only, and few of its modules: a measured process's imports are part of its start.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping

CHANNEL_CLOSED = 113
"""Exit code, unused by programs, of a child whose work closed the pipe: the waiting supervisor sees nothing else."""

SUPERVISOR_PID = "BENCHMATE_CASES_PARENT"
"""The environment variable that tells a child who supervises it."""

_SET_DEATH_SIGNAL = 1  # prctl(2)


class ResultChannel:
    """The descriptor inherited from the supervisor.

    Made before the child's work starts, so that a file which gets this number later is not mistaken for the pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._inode = _inode(descriptor)
        # What the child starts must not hold the supervisor's pipe open.
        os.set_inheritable(descriptor, False)

    def send(self, result: Mapping[str, object]) -> bool:
        """Write the result as a line of JSON. Return False when the pipe is closed or the supervisor is gone."""
        from benchmate.records import encode  # only now, when nothing is measured any more

        try:
            if _inode(self._descriptor) != self._inode:
                return False
            unsent = memoryview(encode(result) + b"\n")
            while unsent:
                unsent = unsent[os.write(self._descriptor, unsent) :]
        except OSError:
            return False
        return True


def die_with_parent(parent: int) -> None:
    """Kill this process when its parent ends, however that happens. At once if it has ended already."""
    # Not inherited by a fork, and lost at exec of a set-user-id program: each process asks for itself.
    prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    # It may have ended between our start and the call above, which then never fires.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def die_with_supervisor() -> None:
    """Kill this process when its supervisor ends. Do nothing in a process without a supervisor."""
    if SUPERVISOR_PID in os.environ:
        die_with_parent(int(os.environ[SUPERVISOR_PID]))


def prctl(option: int, value: int) -> None:
    """Call prctl(2). Where there is no such call the guarantee is missing, not the measurement."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _inode(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
