"""How a case gets a process of its own: a fresh interpreter, or a fork of a warm one that never runs a case itself."""

from __future__ import annotations

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
from typing import NoReturn, Protocol, TypedDict, cast

from benchmate.cases.memory_peaks import holds_device
from benchmate.result_channel import SUPERVISOR_PID, die_with_parent
from benchmate.supervisor import SupervisedProcess, adopt_orphans, child_pids, kill_strays, signal_group, spawn

_LEAVING_S = 5.0
_READY_S = 600.0  # importing a large program from a network file system

RunForked = Callable[[str, int], int]
"""Run the case of a name, send its result to a descriptor, return the exit code."""


class IsolationError(Exception):
    """Processes cannot be started in the way asked for; the text says why and a hint."""


class Isolation(Protocol):
    """A way of starting the processes of cases."""

    def start(self, name: str, result: int, output: int) -> SupervisedProcess:
        """Start a case that writes its result and its output into these descriptors. Raises IsolationError."""

    def close(self) -> None:
        """Let go of what was kept warm."""


class Spawn:
    """A fresh interpreter for each case. `program` starts this program again; `kept` descriptors live in the children too."""

    def __init__(self, program: Sequence[str], kept: Sequence[int]) -> None:
        self._program, self._kept = tuple(program), tuple(kept)
        adopt_orphans()

    def start(self, name: str, result: int, output: int) -> SupervisedProcess:
        """See Isolation."""
        argv = [*self._program, "--run", name, "--socket", f"fd:{result}"]
        return spawn(argv, output=output, pass_fds=(result, *self._kept))

    def close(self) -> None:
        """Nothing is kept."""


class ServerMessage(TypedDict, total=False):
    """What the fork server answers: that it is ready or why it refuses, then for each request a pid and an exit code."""

    ready: bool
    refused: str
    pid: int
    code: int


class Forks:
    """Forks of one interpreter that has imported the program, and `preload`, and never runs a case itself.

    Raises IsolationError where a fork would not be safe: when importing has made a device context or started threads.
    """

    def __init__(self, program: Sequence[str], kept: Sequence[int]) -> None:
        self._program, self._kept = tuple(program), tuple(kept)
        self._server, self._socket = self._start_server()

    def start(self, name: str, result: int, output: int) -> SupervisedProcess:
        """See Isolation."""
        try:
            return self._fork(name, result, output)
        except (OSError, _ServerGone):
            self.close()
            self._server, self._socket = self._start_server()
        try:
            return self._fork(name, result, output)
        except (OSError, _ServerGone) as error:
            raise IsolationError(f"--isolation fork: the server ended: {error}; use --isolation spawn") from None

    def close(self) -> None:
        """End the server; it goes when its socket does."""
        _end_server(self._socket, self._server)

    def _start_server(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        # Messages, not a stream: two answers that come at once stay two.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            server = subprocess.Popen(
                [*self._program, "--serve", f"fd:{theirs.fileno()}"],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                pass_fds=(theirs.fileno(), *self._kept),
                start_new_session=True,
                env={**os.environ, SUPERVISOR_PID: str(os.getpid())},
            )
        ours.settimeout(_READY_S)
        try:
            message = _receive(ours)
        except (OSError, _ServerGone):
            code = _end_server(ours, server)
            raise IsolationError(f"the program ended while it was imported, with exit code {code}") from None
        if "refused" in message:
            _end_server(ours, server)
            raise IsolationError(f"--isolation fork: {message['refused']}, or use --isolation spawn")
        return server, ours

    def _fork(self, name: str, result: int, output: int) -> SupervisedProcess:
        socket.send_fds(self._socket, [name.encode()], [result, output])
        return _ForkedProcess(self._socket, _receive(self._socket)["pid"])


def _end_server(connection: socket.socket, server: subprocess.Popen[bytes]) -> int:
    """Let the server go; return its exit code."""
    connection.close()
    try:
        return server.wait(_LEAVING_S)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


class _ForkedProcess:
    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self.pid = pid
        self.ended = connection.fileno()

    def close(self) -> int | None:
        # Once the server has answered, the leader is reaped, its group ended, and its number may be somebody else's.
        if not select.select([self._connection], [], [], 0)[0]:
            signal_group(self.pid)
        try:
            return _receive(self._connection)["code"]
        except (OSError, _ServerGone):
            return None


class _ServerGone(Exception):
    """Nothing more comes from the fork server."""


def _receive(connection: socket.socket) -> ServerMessage:
    """Return the next message of the server. Raises _ServerGone when there will be none."""
    data = connection.recv(4096)
    if not data:
        raise _ServerGone("it closed its socket")
    return cast("ServerMessage", json.loads(data))


def _send(connection: socket.socket, message: ServerMessage) -> None:
    connection.sendall(json.dumps(message).encode())


def serve_forks(descriptor: int, preload: Sequence[str], run_forked: RunForked) -> int:
    """Fork a process for each request on the socket, until it closes; return the server's own exit code."""
    adopt_orphans()
    connection = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    refused = _import_preloads(preload) or _fork_hazard()
    if refused:
        _send(connection, {"refused": refused})
        return 1
    _send(connection, {"ready": True})
    while (request := _next_request(connection)) is not None:
        name, result, output = request
        known = child_pids()
        pid = _fork_case(connection, name, result, output, run_forked)
        os.close(result)
        os.close(output)
        _send(connection, {"pid": pid})
        # The group is ended before its leader is reaped: until then nobody else can have its number.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        signal_group(pid)
        _, status = os.waitpid(pid, 0)
        kill_strays(known)
        _send(connection, {"code": os.waitstatus_to_exitcode(status)})
    return 0


def _import_preloads(names: Sequence[str]) -> str:
    """Import the modules; return what is wrong with one of them, empty when nothing is."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            return f"--preload {name}: {error}; leave it out"
    return ""


def _fork_hazard() -> str:
    """Return why a fork of this process would lack something that it needs; empty when it would not."""
    device = holds_device()
    if device:
        return f"not safe: the program holds a device once it is imported ({device}); make that part of setup"
    threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if threads:
        return f"not safe: the program starts a thread when it is imported ({threads[0]}); make that part of setup"
    return ""


def _next_request(connection: socket.socket) -> tuple[str, int, int] | None:
    """Return the name of a case and the descriptors for its result and output; None when there will be no more."""
    try:
        data, descriptors, *_ = socket.recv_fds(connection, 65536, 2)
    except OSError:
        return None
    if not data or len(descriptors) != 2:
        return None
    return data.decode(), descriptors[0], descriptors[1]


def _fork_case(connection: socket.socket, name: str, result: int, output: int, run_forked: RunForked) -> int:
    """Fork the process of a case; return, in the server only, once the fork leads a session of its own."""
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
    return _become_case(name, result, output, run_forked)


def _become_case(name: str, result: int, output: int, run_forked: RunForked) -> NoReturn:
    code = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = run_forked(name, result)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
