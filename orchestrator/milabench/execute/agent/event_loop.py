"""Sleep until a descriptor, a signal or a deadline wakes us. Nothing here polls."""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import resource
import selectors
import time

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Callable

    Timer = list[Any]  # [deadline, order, action]; without an action once it is cancelled

GATHER_S = 0.2  # output and records are read and forwarded at most this often
LONGEST_WAIT_S = 86400.0  # the kernel waits no longer than 2^31 ms at a time
READ_BYTES = 1 << 18
F_SETPIPE_SZ = 1031


class EventLoop:
    """Descriptors and deadlines of the agent. `is_paused`: no step is read, because the control plane does not read us."""

    def __init__(self) -> None:
        self.is_paused = False
        self._timers: list[Timer] = []  # a heap
        self._order = itertools.count()
        self._selector = selectors.DefaultSelector()

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Call `action` once, that many seconds from now. Return a handle for `cancel`."""
        timer = [time.monotonic() + seconds, next(self._order), action]
        heapq.heappush(self._timers, timer)
        return timer

    @staticmethod
    def cancel(timer: Timer | None) -> None:
        """Forget a deadline. A past deadline, or None, is no error."""
        if timer is not None:
            timer[2] = None

    def on_readable(self, fd: int, action: Callable[[int], None]) -> None:
        """Call `action` whenever there is something to read."""
        self._selector.register(fd, selectors.EVENT_READ, action)

    def on_writable(self, fd: int, action: Callable[[int], None]) -> None:
        """Call `action` whenever something can be written."""
        self._selector.register(fd, selectors.EVENT_WRITE, action)

    def forget(self, fd: int) -> None:
        """Watch a descriptor no longer. An unwatched descriptor is no error."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def turn(self) -> None:
        """Wait for the next event, a descriptor or a deadline, and handle it."""
        while self._timers and self._timers[0][2] is None:
            heapq.heappop(self._timers)
        wait_s = min(LONGEST_WAIT_S, max(0.0, self._timers[0][0] - time.monotonic())) if self._timers else None
        for key, mask in self._selector.select(wait_s):
            # What came before it in this turn may have let go of the descriptor, whose number may be another's by now.
            if self._selector.get_map().get(key.fd) is key:
                key.data(mask)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            action = heapq.heappop(self._timers)[2]
            if action is not None:
                action()


class NamedTimers:
    """Deadlines by name. A later deadline replaces an earlier one of the same name."""

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self._running: dict[str, Timer] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def start(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` once, that many seconds from now, unless it is cancelled by its name."""
        self.cancel(name)

        def fire() -> None:
            self._running.pop(name, None)
            action()

        self._running[name] = self.loop.after(seconds, fire)

    def cancel(self, *names: str) -> None:
        """Forget deadlines. A name without a deadline is no error."""
        for name in names:
            self.loop.cancel(self._running.pop(name, None))

    def cancel_all(self) -> None:
        """Forget all deadlines."""
        self.cancel(*list(self._running))


def raise_file_limit() -> tuple[int, int]:
    """Raise our limit of open files to the maximum. Return the former limits."""
    # A step costs three descriptors, every process of it on the sink one, and another for each of its rings.
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    return before


def widen_pipe(fd: int, size: int) -> None:
    """Raise the capacity of a pipe to this many bytes. Unchanged where the user's limit of pipe memory is reached."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, F_SETPIPE_SZ, size)
