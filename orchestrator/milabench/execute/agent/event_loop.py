"""Deadlines, and the small parts of a loop that sleeps until a descriptor, a signal or a deadline wakes it."""

from __future__ import annotations

import fcntl
import heapq
import itertools
import resource
import selectors
import time
from typing import Any, Callable, List, Optional, Tuple

GATHER_S = 0.2  # output and records are read and forwarded at most this often
LONGEST_WAIT_S = 86400.0  # the kernel waits no longer than 2^31 ms at a time
READ_BYTES = 1 << 18
F_SETPIPE_SZ = 1031


class Timers:
    """Deadlines and what to do at each."""

    def __init__(self) -> None:
        self._heap: List[List[Any]] = []
        self._order = itertools.count()

    def after(self, seconds: float, action: Callable[[], None]) -> List[Any]:
        """Calls `action` once, that many seconds from now; the answer is for `cancel`."""
        entry = [time.monotonic() + seconds, next(self._order), action]
        heapq.heappush(self._heap, entry)
        return entry

    @staticmethod
    def cancel(entry: Optional[List[Any]]) -> None:
        """Forgets a deadline; one that has passed, or None, is no error."""
        if entry is not None:
            entry[2] = None

    def wait_s(self) -> Optional[float]:
        """Seconds until the next deadline, at most LONGEST_WAIT_S; None without one."""
        while self._heap and self._heap[0][2] is None:
            heapq.heappop(self._heap)
        return min(LONGEST_WAIT_S, max(0.0, self._heap[0][0] - time.monotonic())) if self._heap else None

    def run_due(self) -> None:
        """Does what is due."""
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            action = heapq.heappop(self._heap)[2]
            if action is not None:
                action()


def raise_file_limit() -> Tuple[int, int]:
    """Lets us open as many files as we may; the limits as they were."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    except (OSError, ValueError):
        pass
    return before


def widen(fd: int, size: int) -> None:
    """Lets a pipe hold so many bytes; it stays as it is where the user's allowance of pipe memory is used up."""
    try:
        fcntl.fcntl(fd, F_SETPIPE_SZ, size)
    except OSError:
        pass


def select_write(fd: int, seconds: float) -> None:
    """Waits until something can be written."""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_WRITE)
        selector.select(max(0.0, seconds))
