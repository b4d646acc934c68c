"""When a server can take requests."""

from __future__ import annotations

import errno
import re
import socket
from typing import Any, Callable, Dict, List, Mapping, Optional

from .event_loop import NamedTimers

KNOCK_S = 0.2  # between two attempts to reach a server
HEARD_CHARACTERS = 4096  # of the output that a pattern may span


class Service:
    """A server's readiness: a pattern in its output, or a port that answers; with neither it is ready at once.

    `spec` is the request's `ready`: {"timeout_s", "pattern" or "port", "hosts"}.
    """

    def __init__(self, spec: Mapping[str, Any], timers: NamedTimers, on_ready: Callable[[], None]) -> None:
        self.timeout_s = float(spec["timeout_s"])
        self._spec = spec
        self._timers = timers
        self._on_ready = on_ready
        self._pattern: Optional[Any] = None  # until it matches
        self._output: Dict[str, str] = {}  # the end of each pipe's
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
        if self._pattern is None:
            return
        text = self._output.get(pipe, "") + data.decode("utf-8", "replace")
        if self._pattern.search(text):
            self._pattern, self._output = None, {}
            self._on_ready()
        else:
            self._output[pipe] = text[-HEARD_CHARACTERS:]  # it may come in pieces

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
