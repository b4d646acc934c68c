"""How long a user's regular expression may search: a limit that holds in the midst of a match too.

A pattern such as `(a+)+$` takes twice as long for every further character, and a deadline between two matches never comes.
Python's engine looks for signals every 4096 steps of a match, in the main thread only: an exception from a signal handler
there ends the match.
"""

from __future__ import annotations

import atexit
import signal
import time
from collections.abc import Callable
from types import FrameType

TICK_S = 0.05
# Seconds of CPU time: for one line; for a whole log, with what each of its characters adds. Per pattern.
LINE_S = 1.0
LOG_S = 10.0
CHARACTER_S = 5e-6


class SearchTooLong(Exception):
    """A search exceeded its limit. The text says by which: `more than 1 s on`."""


class SearchWatch:
    """Ticks after every TICK_S of CPU time while something is `searching`. Rests while nothing is.

    `searching` takes the CPU seconds since the last tick into account. Its exception ends the match.
    """

    def __init__(self) -> None:
        self.searching: Callable[[float], None] | None = None
        self.is_ticking = False
        self._used_s = 0.0

    def start(self) -> None:
        """Begin to tick. Only in the main thread."""
        self.is_ticking = True
        self._used_s = time.thread_time()
        # By CPU time, so that a machine on which others work allows as much; SIGALRM is asyncio's neighbours' and ours.
        signal.setitimer(signal.ITIMER_VIRTUAL, TICK_S, TICK_S)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a tick. The timer counts all threads' time, `used_s` only this thread's."""
        before, self._used_s = self._used_s, time.thread_time()
        search, self.searching = self.searching, None  # from here on nothing is raised twice
        if search is None:
            self.is_ticking = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            return
        search(self._used_s - before)
        self.searching = search


def search_watch() -> SearchWatch:
    """Return the process's watch, which is the handler of SIGVTALRM from the first call on. Only in the main thread."""
    installed = signal.getsignal(signal.SIGVTALRM)
    if isinstance(installed, SearchWatch):
        watch = installed
    else:
        watch = SearchWatch()
        # Python takes its handlers away before it frees its modules: a tick would then end the process.
        atexit.register(signal.setitimer, signal.ITIMER_VIRTUAL, 0.0)
    signal.signal(signal.SIGVTALRM, watch)
    watch.is_ticking = False  # a timer is not inherited by a process that was forked since
    return watch
