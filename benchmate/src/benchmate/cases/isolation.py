"""How a case gets a process of its own: a fresh interpreter, or a fork of a warm one that never runs a case itself."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from benchmate.cases.command import PARENT
from benchmate.cases.memory_peaks import holds_device
from benchmate.cases.processes import adopt_orphans, children, die_with_parent, end_group, end_strays

_LEAVING_S = 5.0
_READY_S = 600.0  # importing a large program from a network file system


class IsolationError(Exception):
    """Processes cannot be started in the way asked for; the text says why and the way out."""


class Running(Protocol):
    """A case's process: leader of a session and group of its own."""

    @property
    def pid(self) -> int:
        """Of the leader."""

    @property
    def ended(self) -> int:
        """A descriptor that is readable once the leader has ended."""

    def close(self) -> int | None:
        """End the group and what has left it, reap the leader; its exit code as of subprocess, None when nobody knows."""


class Isolation(Protocol):
    """A way of starting processes."""

    def start(self, name: str, result: int, output: int) -> Running:
        """Start a case that writes its result and its output into these descriptors. Raises IsolationError."""

    def close(self) -> None:
        """Let go of what was kept warm."""


class Spawn:
    """A fresh interpreter for each case. `program` starts this program again; `kept` descriptors live in the children too."""

    def __init__(self, program: Sequence[str], arguments: Sequence[str], kept: Sequence[int]) -> None:
        self._program, self._arguments, self._kept = tuple(program), tuple(arguments), tuple(kept)
        adopt_orphans()

    def start(self, name: str, result: int, output: int) -> Running:
        """See Isolation."""
        known = children()
        process = subprocess.Popen(
            [*self._program, *self._arguments, "--run", name, "--socket", f"fd:{result}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(result, *self._kept),
            start_new_session=True,
            env={**os.environ, PARENT: str(os.getpid())},
        )
        return _Interpreter(process, known)

    def close(self) -> None:
        """Nothing is kept."""


class _Interpreter:
    def __init__(self, process: subprocess.Popen[bytes], known: set[int]) -> None:
        self._process, self._known = process, known
        self.pid = process.pid
        self.ended = _told_of_end(process.pid)

    def close(self) -> int | None:
        # Before it is reaped: as long as it is there, nobody else can have its number.
        end_group(self.pid)
        code = self._process.wait()
        os.close(self.ended)
        end_strays(self._known)
        return code


def _told_of_end(pid: int) -> int:
    """A descriptor that becomes readable when a child ends; the child is not reaped."""
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    reading, writing = os.pipe()

    def wait() -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(writing)

    threading.Thread(target=wait, daemon=True).start()
    return reading


class Forks:
    """Forks of one interpreter that has imported the program, and `preload`, and never runs a case itself.

    Raises IsolationError where a fork would not be safe: when importing has made a device context or started threads.
    """

    def __init__(self, program: Sequence[str], arguments: Sequence[str], kept: Sequence[int]) -> None:
        self._command = (*program, *arguments)
        self._kept = tuple(kept)
        self._server, self._socket = self._started()

    def start(self, name: str, result: int, output: int) -> Running:
        """See Isolation."""
        try:
            return self._forked(name, result, output)
        except (OSError, _ServerGone):
            self.close()
            self._server, self._socket = self._started()
        try:
            return self._forked(name, result, output)
        except (OSError, _ServerGone) as error:
            raise IsolationError(f"--isolation fork: the server ended: {error}; use --isolation spawn") from None

    def close(self) -> None:
        """End the server; it goes when its socket does."""
        _end(self._socket, self._server)

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        # Messages, not a stream: two answers that come at once stay two.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            server = subprocess.Popen(
                [*self._command, "--serve", f"fd:{theirs.fileno()}"],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                pass_fds=(theirs.fileno(), *self._kept),
                start_new_session=True,
                env={**os.environ, PARENT: str(os.getpid())},
            )
        ours.settimeout(_READY_S)
        try:
            said = _answer(ours)
        except (OSError, _ServerGone):
            code = _end(ours, server)
            raise IsolationError(f"the program ended while it was imported, with exit code {code}") from None
        if "refused" in said:
            _end(ours, server)
            raise IsolationError(f"--isolation fork: {said['refused']}, or use --isolation spawn")
        return server, ours

    def _forked(self, name: str, result: int, output: int) -> Running:
        socket.send_fds(self._socket, [json.dumps({"run": name}).encode()], [result, output])
        return _Fork(self._socket, _answer(self._socket)["pid"])


def _end(connection: socket.socket, server: subprocess.Popen[bytes]) -> int:
    """Let the server go; its exit code."""
    connection.close()
    try:
        return server.wait(_LEAVING_S)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


class _Fork:
    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self.pid = pid
        self.ended = connection.fileno()

    def close(self) -> int | None:
        # Once the server has answered, the leader is reaped, its group ended, and its number may be somebody else's.
        if not select.select([self._connection], [], [], 0)[0]:
            end_group(self.pid)
        try:
            return int(_answer(self._connection)["code"])
        except (OSError, _ServerGone):
            return None


class _ServerGone(Exception):
    """Nothing more comes from the server of forks."""


def _answer(connection: socket.socket) -> dict[str, Any]:
    """The next message of the server. Raises _ServerGone when there will be none."""
    read = connection.recv(4096)
    if not read:
        raise _ServerGone("it closed its socket")
    said: dict[str, Any] = json.loads(read)
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    name: str
    result: int
    output: int


def serve(descriptor: int, preload: Sequence[str], live: Callable[[str, int], int]) -> int:
    """Fork a process for each request on the socket, until it closes; `live(name, result)` is called in the fork.

    Its result is the fork's exit code. Returns the server's own exit code.
    """
    adopt_orphans()
    connection = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    refused = _preloaded(preload) or _unsafe()
    if refused:
        connection.sendall(json.dumps({"refused": refused}).encode())
        return 1
    connection.sendall(b'{"ready": true}')
    while (request := _next(connection)) is not None:
        known = children()
        pid = _fork(connection, request, live)
        os.close(request.result)
        os.close(request.output)
        connection.sendall(json.dumps({"pid": pid}).encode())
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        end_group(pid)
        _, status = os.waitpid(pid, 0)
        end_strays(known)
        connection.sendall(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
    return 0


def _preloaded(names: Sequence[str]) -> str:
    """Import them; what is wrong with one of them, empty when nothing is."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            return f"--preload {name}: {error}; leave it out"
    return ""


def _unsafe() -> str:
    """Why a fork of this process would lack something that it needs; empty when it would not."""
    held = holds_device()
    if held:
        return f"not safe: the program holds a device once it is imported ({held}); make that part of setup"
    threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if threads:
        return f"not safe: the program starts a thread when it is imported ({threads[0]}); make that part of setup"
    return ""


def _next(connection: socket.socket) -> _Request | None:
    try:
        read, descriptors, *_ = socket.recv_fds(connection, 65536, 2)
    except OSError:
        return None
    if not read or len(descriptors) != 2:
        return None
    return _Request(name=json.loads(read)["run"], result=descriptors[0], output=descriptors[1])


def _fork(connection: socket.socket, request: _Request, live: Callable[[str, int], int]) -> int:
    """The process of a case; returns in the server only, once the fork leads a session of its own."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reading, writing = os.pipe()
    server = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        return pid
    os.setsid()
    die_with_parent(server)
    connection.close()
    os.close(reading)
    os.write(writing, b"1")
    os.close(writing)
    return _be(request, live)


def _be(request: _Request, live: Callable[[str, int], int]) -> NoReturn:
    code = 1
    try:
        os.dup2(request.output, 1)
        os.dup2(request.output, 2)
        os.close(request.output)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = live(request.name, request.result)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
