"""Where records go: the agent's socket, a pipe in voir's own protocol, or a table on stderr.

A sink never raises into the script: when the agent is gone, records are lost, but the run goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmate.records import encode

SEND_TIMEOUT_S = 5.0
"""An agent that does not read must not hold the script for longer."""

FileId = tuple[int, int]
"""Device and inode of an open file."""


class Sink:
    """A destination for records. The base class drops them all."""

    def __init__(self) -> None:
        self.dropped = self.records = self.bytes = 0

    @property
    def ring_folder(self) -> Path | None:
        """The folder where another process reads rings. None when this process must read its rings itself."""
        return None

    def record(self, event: str, data: Mapping[str, object]) -> None:
        """Send a record."""

    def control(self, line: Mapping[str, object]) -> None:
        """Send a line to the agent itself. Without an agent, a failure is a record like others."""
        failure = line.get("fail")
        if isinstance(failure, Mapping):
            self.record("fail", failure)

    def answer(self, timeout_s: float) -> dict[str, object] | None:
        """Return the next line from the agent, or None when none came in time."""
        return None

    def forked(self) -> None:
        """Forget the connection if it belongs to the parent process alone."""

    def close(self) -> None:
        """Send the rest."""


class AgentSink(Sink):
    """A stream socket to the agent. A connection per process, opened again when the script has closed it."""

    def __init__(self, path: str, hello: Mapping[str, object]) -> None:
        super().__init__()
        self.path = path
        self.hello = dict(hello)
        self._socket: socket.socket | None = None
        self._file_id: FileId | None = None
        self._is_gone = False
        self._connect()

    @property
    def ring_folder(self) -> Path | None:
        return None if self._is_gone else Path(self.path).parent

    def record(self, event: str, data: Mapping[str, object]) -> None:
        # The agent puts its time stamp in place of the last brace: key order and the closing brace are part of the contract.
        self._send(encode({"event": event, "data": data, "pipe": "data"}) + b"\n")

    def control(self, line: Mapping[str, object]) -> None:
        self._send(encode(line) + b"\n")

    def answer(self, timeout_s: float) -> dict[str, object] | None:
        connection = self._open_socket()
        if connection is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            connection.settimeout(timeout_s)
            # Without a buffer nothing behind the line is taken.
            with connection.makefile("rb", buffering=0) as lines:
                answer: dict[str, object] = json.loads(lines.readline())
            return answer
        return None

    def forked(self) -> None:
        # Closing our end of what is one connection leaves the parent's open.
        self._disconnect()
        self.hello["pid"] = os.getpid()

    def close(self) -> None:
        self._disconnect()
        self._is_gone = True

    def _send(self, line: bytes) -> None:
        for _ in range(2):
            connection = None if self._is_gone else self._open_socket() or self._connect()
            if connection is None:
                break
            try:
                connection.settimeout(SEND_TIMEOUT_S)
                connection.sendall(line)
            except OSError:
                # A line cut in the middle is torn on this connection only: the next connection starts afresh.
                self._disconnect()
                continue
            self.records += 1
            self.bytes += len(line)
            return
        self._is_gone = True
        self.dropped += 1

    def _connect(self) -> socket.socket | None:
        connection = None
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(SEND_TIMEOUT_S)
            connection.connect(self.path)
            # Each connection introduces itself: the agent knows a process by nothing else.
            connection.sendall(encode({"hello": self.hello}) + b"\n")
        except OSError as error:
            if connection is not None:
                connection.close()
            if not self._is_gone:
                _print_error(f"benchmate: {self.path}: {error.strerror or error}. Records are lost from here on")
            self._is_gone = True
            return None
        self._socket, self._file_id = connection, _file_id(connection.fileno())
        return connection

    def _open_socket(self) -> socket.socket | None:
        """Return the socket if our descriptor still is that: a script that closes all descriptors may reuse its number."""
        if self._socket is not None and _file_id(self._socket.fileno()) != self._file_id:
            self._socket.detach()
            self._socket = None
        return self._socket

    def _disconnect(self) -> None:
        connection = self._open_socket()
        if connection is not None:
            connection.close()
        self._socket = None


class PipeSink(Sink):
    """A pipe that speaks voir's own protocol: measurements are plain objects, everything else is `$event` and `$data`.

    A forked child writes to it, too: a pipe is shared, and lines of up to PIPE_BUF bytes do not mix.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor, self._file_id = descriptor, _file_id(descriptor)
        if self._file_id is None:
            _print_error(f"benchmate: descriptor {descriptor} is not open. Records are lost")

    def record(self, event: str, data: Mapping[str, object]) -> None:
        self._send(encode(data if event == "data" else {"$event": event, "$data": data}) + b"\n")

    def close(self) -> None:
        self._file_id = None

    def _send(self, line: bytes) -> None:
        # Another file under our number is the script's own.
        if self._file_id is not None and _file_id(self._descriptor) == self._file_id:
            rest = memoryview(line)
            with contextlib.suppress(OSError):
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
                self.records += 1
                self.bytes += len(line)
                return
        self._file_id = None
        self.dropped += 1


class TableSink(Sink):
    """Keeps totals, and prints them as a table on stderr at the end, where no agent listens."""

    def __init__(self) -> None:
        super().__init__()
        self.forked()

    def record(self, event: str, data: Mapping[str, object]) -> None:
        self.table.add(event, data)

    def forked(self) -> None:
        """Start new totals: the parent prints its own."""
        # Imported late: under an agent no process needs it.
        from benchmate.summary_table import SummaryTable

        self.table = SummaryTable()

    def close(self) -> None:
        text = self.table.text()
        if text:
            _print_error(text)


def open_sink(env: Mapping[str, str], hello: Mapping[str, object]) -> Sink:
    """Return the sink that the environment asks for: MILABENCH_SINK, then DATA_FD, else a table."""
    target = env.get("MILABENCH_SINK") or (f"fd:{env['DATA_FD']}" if env.get("DATA_FD") else "")
    kind, colon, place = target.partition(":")
    if kind == "unix" and colon:
        return AgentSink(place, hello)
    if kind == "fd" and place.isdecimal():
        return PipeSink(int(place))
    if target:
        _print_error(
            f"benchmate: MILABENCH_SINK={target!r}: expected unix:PATH or fd:NUMBER. Results are printed instead"
        )
    return TableSink()


def _file_id(descriptor: int) -> FileId | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _print_error(text: str) -> None:
    """Write to the process's own stderr, whatever the script has put in its place."""
    # A script may log through sys.stderr into a file, or count what is written there.
    stream = sys.__stderr__
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
        os.write(stream.fileno(), (text + "\n").encode("utf-8", "backslashreplace"))
