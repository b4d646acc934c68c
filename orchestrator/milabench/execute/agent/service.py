"""When a server can take requests."""

from __future__ import annotations

import errno
import re
import signal
import socket
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from .event_loop import NamedTimers

KNOCK_S = 0.2  # between two attempts to reach a server
HEARD_CHARACTERS = 4096  # of the output that a pattern may span
PIECE_CHARACTERS = 1 << 15  # searched at once, and what was heard before
SEARCH_S = 1.0  # of CPU time, in one piece
SEARCHES_S = 10.0  # in all


class Service:
    """A server's readiness: a pattern in its output, or a port that answers; with neither it is ready at once.

    `spec` is the request's `ready`: {"timeout_s", "pattern" or "port", "hosts"}. `on_failure` is called with what is wrong
    with the pattern.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        timers: NamedTimers,
        on_ready: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self.timeout_s = float(spec["timeout_s"])
        self._spec = spec
        self._timers = timers
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._pattern: Optional[Any] = None  # until it matches
        self._output: Dict[str, str] = {}  # the end of each pipe's
        self._ended: Dict[str, int] = {}  # lines
        self._used_s = 0.0
        self._port = 0
        self._hosts: List[str] = list(spec.get("hosts") or ["127.0.0.1"])

    def prepare(self, fill: Callable[[str], str]) -> None:
        """Learn what to wait for; before the server is started. Raise OSError when somebody else answers in its place."""
        if "pattern" in self._spec:
            self._pattern = re.compile(self._spec["pattern"], re.MULTILINE)
        elif "port" in self._spec:
            self._port = int(fill("@port") if self._spec["port"] == "@port" else self._spec["port"])
            if self._answers():
                raise OSError(errno.EADDRINUSE, "port %d is in use already" % self._port)

    def wait(self) -> None:
        """Start to wait for the server, which has been started."""
        if self._port:
            self._knock()
        elif self._pattern is None:
            self._on_ready()

    def scan(self, pipe: str, data: bytes) -> None:
        """Look in its output for the pattern."""
        text = data.decode("utf-8", "replace") if self._pattern is not None else ""
        for begin in range(0, len(text), PIECE_CHARACTERS):
            piece = text[begin : begin + PIECE_CHARACTERS]
            self._ended[pipe] = self._ended.get(pipe, 0) + piece.count("\n")
            searched = self._output.get(pipe, "") + piece  # it may come in pieces
            if self._search(searched, pipe):
                self._pattern, self._output = None, {}
                self._on_ready()
            if self._pattern is None:
                return
            self._output[pipe] = searched[-HEARD_CHARACTERS:]

    def _search(self, text: str, pipe: str) -> bool:
        """Return whether the pattern is in the text; give it up when that takes too long."""
        assert self._pattern is not None
        begun_s = time.thread_time()
        try:
            found = search_within(self._pattern, text, min(SEARCH_S, SEARCHES_S - self._used_s))
        except TimeoutError:
            where = "the output up to line %d of %s" % (self._ended[pipe] + 1, pipe)
            used = "%g s on" % SEARCH_S if self._used_s + SEARCH_S <= SEARCHES_S else "%g s in all on" % SEARCHES_S
            self._on_failure("the pattern %r took more than %s %s" % (self._pattern.pattern, used, where))
            self._pattern, self._output = None, {}
            return False
        self._used_s += time.thread_time() - begun_s
        return found

    def missing(self) -> str:
        """Return what is still waited for, for a person."""
        if "port" in self._spec:
            return "nothing answers on port %d" % self._port
        return "its output does not match %r" % self._spec.get("pattern", "")

    def _knock(self) -> None:
        if self._answers():
            self._on_ready()
        else:
            self._timers.start("knock", KNOCK_S, self._knock)

    def _answers(self) -> bool:
        for host in list(self._hosts):
            try:
                socket.create_connection((host, self._port), KNOCK_S).close()
                return True
            except socket.timeout:
                self._hosts.remove(host)  # an address of ours answers at once, if only to refuse
            except OSError:
                pass
        return False


def search_within(pattern: Any, text: str, seconds: float) -> bool:
    """Return whether a pattern is in a text. Raise TimeoutError after so many seconds of CPU time, in the midst of the match."""

    def expire(*_: Any) -> None:
        raise TimeoutError

    # Python's engine looks for signals every 4096 steps; nothing else ends a match.
    before = signal.signal(signal.SIGVTALRM, expire)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, max(seconds, 0.001))
        return pattern.search(text) is not None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
