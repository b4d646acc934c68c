"""What Linux lets one say about processes: who adopts the orphans, who dies with whom, and who is left over."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # prctl(2)


def adopt_orphans() -> None:
    """From here on processes that our descendants abandon become our children, wherever they have hidden."""
    _prctl(_SET_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """End this process when the one that started it ends, however that happens; at once if it has."""
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def children() -> set[int]:
    """The children of this process that have not been waited for."""
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name in brackets may hold anything; the parent is the second field after the last one.
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == os.getpid():
                    found.add(int(entry.name))
    return found


def end_strays(known: set[int], patience_s: float = 5.0) -> int:
    """End all children but the known ones, and what they in turn abandon; how many there were that still lived.

    One that a driver holds in the kernel may not end; after `patience_s` it is left.
    """
    ended, deadline = 0, time.monotonic() + patience_s
    while (strays := children() - known) and time.monotonic() < deadline:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                reaped, status = os.waitpid(pid, os.WNOHANG)
                ended += reaped == pid and os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        time.sleep(0.001)
    return ended


def end_group(leader: int, number: int = signal.SIGKILL) -> None:
    """Signal a process group; one that is gone, or may not be signalled, is left alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def oom_kills() -> int:
    """How many processes the kernel has killed for memory, on this machine and in this control group, so far."""
    found = 0
    for path in ("/proc/vmstat", *_memory_events()):
        with contextlib.suppress(OSError, ValueError):
            for line in Path(path).read_text().splitlines():
                if line.startswith("oom_kill "):
                    found += int(line.split()[1])
    return found


def _memory_events() -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return (f"/sys/fs/cgroup{line[3:].rstrip('/')}/memory.events",)
    return ()


def _prctl(option: int, value: int) -> None:
    import ctypes

    # Where there is no such call the guarantee is missing, not the measurement.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
