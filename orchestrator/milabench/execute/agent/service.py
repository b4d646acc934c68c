"""When a server can take requests."""

from __future__ import annotations

import errno
import re
import signal
import socket
import time

from .event_loop import NamedTimers

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

KNOCK_S = 0.2  # between two attempts to reach a server
REPLY_S = 5.0  # an answer to HTTP may take so long
REPLY_BYTES = 1 << 12
STATUS = re.compile(rb"HTTP/\d\S* (\d{3})\b")
HEARD_CHARACTERS = 4096  # of the output that a pattern may span
PIECE_CHARACTERS = 1 << 15  # searched at once, and what was heard before
SEARCH_S = 1.0  # of CPU time, in one piece
SEARCHES_S = 10.0  # in all


class Service:
    """A server's readiness: a pattern in its output, or a port that answers. With neither it is ready at once.

    `spec` is the request's `ready`: {"timeout_s", "pattern" or "port", "path", "hosts"}. With a `path`, the port has to answer
    200 to it by HTTP. `on_error` is called with the error of the pattern.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        timers: NamedTimers,
        on_ready: Callable[[], None],
        on_error: Callable[[str], None],
    ) -> None:
        self.timeout_s = float(spec["timeout_s"])
        self._spec = spec
        self._timers = timers
        self._on_ready = on_ready
        self._on_error = on_error
        self._pattern: Any | None = None  # until it matches
        self._output: dict[str, str] = {}  # the end of each pipe's
        self._ended: dict[str, int] = {}  # lines
        self._used_s = 0.0
        self._port = 0
        self._path = str(spec.get("path") or "")
        self._connection: socket.socket | None = None  # on which an answer is waited for
        self._reply = b""
        self._other_answer = ""  # the last that was not 200
        self._hosts: list[str] = list(spec.get("hosts") or ["127.0.0.1"])

    def prepare(self, fill: Callable[[str], str]) -> None:
        """Determine the condition to wait for, before the server starts. Raise OSError when another process answers instead."""
        if "pattern" in self._spec:
            self._pattern = re.compile(self._spec["pattern"], re.MULTILINE)
        elif "port" in self._spec:
            self._port = int(fill("@port") if self._spec["port"] == "@port" else self._spec["port"])
            connection = self._connect()
            if connection is not None:
                connection.close()
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
        """Return whether the pattern is in the text. Give it up when that takes too long."""
        assert self._pattern is not None
        begun_s = time.thread_time()
        try:
            found = search_within(self._pattern, text, min(SEARCH_S, SEARCHES_S - self._used_s))
        except TimeoutError:
            where = "the output up to line %d of %s" % (self._ended[pipe] + 1, pipe)
            used = "%g s on" % SEARCH_S if self._used_s + SEARCH_S <= SEARCHES_S else "%g s in all on" % SEARCHES_S
            self._on_error("the pattern %r took more than %s %s" % (self._pattern.pattern, used, where))
            self._pattern, self._output = None, {}
            return False
        self._used_s += time.thread_time() - begun_s
        return found

    def close(self) -> None:
        """Wait no longer: the server has ended."""
        self._hang_up()
        self._timers.cancel("knock")

    def missing(self) -> str:
        """Return the condition that is still waited for, for a person."""
        if self._other_answer:
            return "port %d answers %s with %s, not 200" % (self._port, self._path, self._other_answer)
        if "port" in self._spec:
            return "nothing answers on port %d" % self._port
        return "its output does not match %r" % self._spec.get("pattern", "")

    def _knock(self) -> None:
        connection = self._connect()
        if connection is not None and self._path:
            self._ask(connection)
        elif connection is not None:
            connection.close()
            self._on_ready()
        else:
            self._timers.start("knock", KNOCK_S, self._knock)

    def _connect(self) -> socket.socket | None:
        for host in list(self._hosts):
            try:
                return socket.create_connection((host, self._port), KNOCK_S)
            except socket.timeout:
                self._hosts.remove(host)  # an address of ours answers at once, if only to refuse
            except OSError:
                pass
        return None

    def _ask(self, connection: socket.socket) -> None:
        """Ask for the path, and read the answer when it comes: a server that loads its model may be slow to answer."""
        self._connection, self._reply = connection, b""
        question = "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % (self._path, self._port)
        try:
            connection.setblocking(False)
            connection.send(question.encode())
        except OSError:
            self._ask_again("nothing")
            return
        self._timers.loop.on_readable(connection.fileno(), self._read)
        self._timers.start("knock", REPLY_S, lambda: self._ask_again("nothing within %g s" % REPLY_S))

    def _read(self, _: int) -> None:
        assert self._connection is not None
        try:
            data = self._connection.recv(REPLY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._reply += data
        if data and b"\n" not in self._reply and len(self._reply) < REPLY_BYTES:
            return
        status = STATUS.match(self._reply)
        if status is not None and status[1] == b"200":
            self.close()
            self._on_ready()
        else:
            self._ask_again(
                "status " + status[1].decode() if status is not None else "no HTTP" if self._reply else "nothing"
            )

    def _ask_again(self, answer: str) -> None:
        self._other_answer = answer
        self._hang_up()
        self._timers.start("knock", KNOCK_S, self._knock)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._timers.loop.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None


def search_within(pattern: Any, text: str, seconds: float) -> bool:
    """Return whether a pattern is in a text. Raise TimeoutError after this CPU time in seconds, even during the match."""

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
