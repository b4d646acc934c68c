"""Where records go: the agent's socket, a pipe in voir's own protocol, or a table on stderr.

A sink never raises into the script: an agent that is gone costs the records, not the run.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from benchmate.records import encode

SEND_TIMEOUT_S = 5.0


class Sink(Protocol):
    """What the instruments ask of a place for records."""

    dropped: int
    records: int
    bytes: int

    @property
    def ring_folder(self) -> Path | None:
        """Where a ring is read by somebody else; None when this process must read its rings itself."""

    def record(self, event: str, data: Mapping[str, Any]) -> None:
        """Send one record."""

    def control(self, line: Mapping[str, Any]) -> None:
        """Send one line to the agent itself."""

    def answer(self, timeout_s: float) -> dict[str, Any] | None:
        """The next line from the agent, or None when none came in time."""

    def forked(self) -> None:
        """Forget the connection: it belongs to the parent process."""

    def close(self) -> None:
        """Send what is left."""


class AgentSink:
    """A stream socket to the agent; one connection per process, made again when the script has closed it."""

    def __init__(self, path: str, hello: Mapping[str, Any]) -> None:
        self.path = path
        self.hello = dict(hello)
        self.dropped = self.records = self.bytes = 0
        self._socket: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._announced: list[bytes] = []
        self._gone = False
        self._received = b""
        self._connect()

    @property
    def ring_folder(self) -> Path | None:
        return None if self._gone else Path(self.path).parent

    def record(self, event: str, data: Mapping[str, Any]) -> None:
        # The agent stamps the time in place of the last brace: key order and the closing brace are part of the contract.
        self._send(encode({"event": event, "data": data, "pipe": "data"}) + b"\n")

    def control(self, line: Mapping[str, Any]) -> None:
        self._send(encode(line) + b"\n")

    def answer(self, timeout_s: float) -> dict[str, Any] | None:
        import json

        while b"\n" not in self._received:
            if not self._is_ours() or self._socket is None:
                return None
            try:
                self._socket.settimeout(timeout_s)
                chunk = self._socket.recv(65536)
            except OSError:
                return None
            if not chunk:
                return None
            self._received += chunk
        line, self._received = self._received.split(b"\n", 1)
        try:
            return json.loads(line)
        except ValueError:
            return None

    def forked(self) -> None:
        inherited, self._socket = self._socket, None
        if inherited is not None and self._same_file(inherited.fileno()):
            inherited.close()
        elif inherited is not None:
            inherited.detach()
        self._inode = None
        self._received = b""
        self.hello["pid"] = os.getpid()

    def close(self) -> None:
        if self._socket is not None and self._is_ours():
            self._socket.close()
        self._socket = None
        self._gone = True

    def _send(self, line: bytes) -> None:
        for _ in range(2):
            if self._gone or (not self._is_ours() and not self._connect()):
                break
            assert self._socket is not None
            try:
                self._socket.settimeout(SEND_TIMEOUT_S)
                self._socket.sendall(line)
            except OSError:
                # A line cut in the middle is torn on this connection only: the next connection starts afresh.
                self._forget()
                continue
            self.records += 1
            self.bytes += len(line)
            return
        self._gone = True
        self.dropped += 1

    def _connect(self) -> bool:
        connection = None
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(SEND_TIMEOUT_S)
            connection.connect(self.path)
            connection.sendall(encode({"hello": self.hello}) + b"\n")
            status = os.fstat(connection.fileno())
        except OSError as error:
            if connection is not None:
                connection.close()
            if not self._gone:
                _complain(f"benchmate: {self.path}: {error.strerror or error}; records are lost from here on")
            self._gone = True
            return False
        self._socket, self._inode, self._received = connection, (status.st_dev, status.st_ino), b""
        return True

    def _is_ours(self) -> bool:
        """Whether our descriptor is still our socket: a script that closes all descriptors may have reused its number."""
        if self._socket is None:
            return False
        if self._same_file(self._socket.fileno()):
            return True
        self._socket.detach()
        self._socket = None
        return False

    def _same_file(self, descriptor: int) -> bool:
        try:
            status = os.fstat(descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._inode

    def _forget(self) -> None:
        if self._socket is not None and self._is_ours():
            self._socket.close()
        self._socket = None


class PipeSink:
    """A pipe that speaks voir's own protocol: measurements are plain objects, everything else is `$event` and `$data`."""

    ring_folder = None

    def __init__(self, descriptor: int) -> None:
        self.dropped = self.records = self.bytes = 0
        self._descriptor: int | None = descriptor
        try:
            status = os.fstat(descriptor)
        except OSError:
            _complain(f"benchmate: descriptor {descriptor} is not open; records are lost")
            self._descriptor = None
        else:
            self._inode = (status.st_dev, status.st_ino)

    def record(self, event: str, data: Mapping[str, Any]) -> None:
        self._send(encode(data if event == "data" else {"$event": event, "$data": data}) + b"\n")

    def control(self, line: Mapping[str, Any]) -> None:
        if "fail" in line:
            self.record("fail", line["fail"])

    def answer(self, timeout_s: float) -> dict[str, Any] | None:
        return None

    def forked(self) -> None:
        """Nothing to do: a pipe is shared, and lines of up to PIPE_BUF bytes do not mix."""

    def close(self) -> None:
        self._descriptor = None

    def _send(self, line: bytes) -> None:
        if self._descriptor is None:
            self.dropped += 1
            return
        try:
            status = os.fstat(self._descriptor)
            # Another file under our number is the script's own.
            is_ours = (status.st_dev, status.st_ino) == self._inode
            rest = memoryview(line)
            while rest and is_ours:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            is_ours = False
        if not is_ours:
            self._descriptor = None
            self.dropped += 1
            return
        self.records += 1
        self.bytes += len(line)


class TableSink:
    """Nobody listens: keep totals, print them as a table on stderr at the end."""

    ring_folder = None

    def __init__(self) -> None:
        from benchmate.summary_table import SummaryTable

        self.dropped = self.records = self.bytes = 0
        self.table = SummaryTable()
        self._pid = os.getpid()

    def record(self, event: str, data: Mapping[str, Any]) -> None:
        self.table.add(event, data)

    def control(self, line: Mapping[str, Any]) -> None:
        if "fail" in line:
            self.table.add("fail", line["fail"])

    def answer(self, timeout_s: float) -> dict[str, Any] | None:
        return None

    def forked(self) -> None:
        """The parent's totals are the parent's to print."""
        from benchmate.summary_table import SummaryTable

        self.table = SummaryTable()

    def close(self) -> None:
        text = self.table.text()
        if text:
            _complain(text)


def open_sink(env: Mapping[str, str], hello: Mapping[str, Any]) -> Sink:
    """The sink that the environment asks for: MILABENCH_SINK, then DATA_FD, else a table."""
    place = env.get("MILABENCH_SINK", "")
    if place.startswith("unix:"):
        return AgentSink(place.removeprefix("unix:"), hello)
    number = place.removeprefix("fd:") if place.startswith("fd:") else env.get("DATA_FD", "") if not place else None
    if number is None:
        _complain(f"benchmate: MILABENCH_SINK={place!r}: expected unix:PATH or fd:NUMBER; results are printed instead")
    elif number:
        with contextlib.suppress(ValueError):
            return PipeSink(int(number))
        _complain(f"benchmate: {number!r} is not the number of a descriptor; results are printed instead")
    return TableSink()


def _complain(text: str) -> None:
    """Write to the process's own stderr, whatever the script has put in its place."""
    stream = sys.__stderr__
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
        os.write(stream.fileno(), (text + "\n").encode("utf-8", "backslashreplace"))
