"""How a case gets a process of its own: a fresh interpreter, or a fork of a warm interpreter that never runs a case itself."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from benchmate.cases.memory_peaks import holds_device
from benchmate.result_channel import die_with_parent
from benchmate.supervisor import SupervisedProcess, adopt_orphans, child_pids, kill_strays, signal_group, spawn

_LEAVING_S = 5.0
_READY = "ready"
_READY_S = 600.0  # importing a large program from a network file system

RunForked = Callable[[str, int], int]
"""Run the case of a name, send its result to a descriptor, return the exit code."""


class IsolationError(Exception):
    """Processes cannot be started in the way asked for. The text says why and a hint."""


class Spawn:
    """A fresh interpreter for each case. `program` starts this program again. `kept` descriptors live in the children too."""

    def __init__(self, program: Sequence[str], kept: Sequence[int]) -> None:
        self._program, self._kept = tuple(program), tuple(kept)
        adopt_orphans()

    def start(self, name: str, result: int, output: int) -> SupervisedProcess:
        """Start a case that writes its result and its output into these descriptors."""
        argv = [*self._program, "--run", name, "--socket", f"fd:{result}"]
        return spawn(argv, output=output, pass_fds=(result, *self._kept))

    def close(self) -> None:
        """Nothing is kept."""


class Forks:
    """Forks of an interpreter that has imported the program, and `preload`, and never runs a case itself.

    Raises IsolationError where a fork would not be safe: when importing has made a device context or started threads.
    """

    def __init__(self, program: Sequence[str], kept: Sequence[int]) -> None:
        self._program, self._kept = tuple(program), tuple(kept)
        self._start_server()

    def start(self, name: str, result: int, output: int) -> SupervisedProcess:
        """Start a case that writes its result and its output into these descriptors. Raises IsolationError."""
        # A case may have taken the server with it: the next one has a new server, once.
        with contextlib.suppress(OSError):
            return self._fork(name, result, output)
        self.close()
        self._start_server()
        try:
            return self._fork(name, result, output)
        except OSError as error:
            raise IsolationError(f"--isolation fork: the server ended: {error}. Use --isolation spawn") from None

    def close(self) -> int | None:
        """End the server, which goes when its socket does. Return its exit code, None when it was closed before."""
        if self._socket.fileno() < 0:
            return None
        self._socket.close()
        select.select([self._server.ended], [], [], _LEAVING_S)
        return self._server.close()

    def _start_server(self) -> None:
        # Messages, not a stream: two answers that come at once stay two.
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [*self._program, "--serve", f"fd:{theirs.fileno()}"]
            self._server = spawn(argv, output=sys.stderr.fileno(), pass_fds=(theirs.fileno(), *self._kept))
        self._socket.settimeout(_READY_S)
        try:
            answer = _receive(self._socket)
        except OSError:
            code = self.close()
            raise IsolationError(f"the program ended while it was imported, with exit code {code}") from None
        if answer != _READY:
            self.close()
            raise IsolationError(f"--isolation fork: {answer}, or use --isolation spawn")

    def _fork(self, name: str, result: int, output: int) -> SupervisedProcess:
        connection = self._socket
        socket.send_fds(connection, [name.encode()], [result, output])
        pid = int(_receive(connection))

        def close() -> int | None:
            # Once the server has answered, the leader is reaped, its group ended, and its number may be somebody else's.
            if not select.select([connection], [], [], 0)[0]:
                signal_group(pid)
            with contextlib.suppress(OSError):
                return int(_receive(connection))
            return None

        return SupervisedProcess(pid, connection.fileno(), close)


def _receive(connection: socket.socket) -> str:
    """Return the server's next answer. Raises OSError when there will be none.

    The first is _READY or why it refuses. For each request there are the process's number and its exit code.
    """
    data = connection.recv(4096)
    if not data:
        raise ConnectionResetError("it closed its socket")
    return data.decode()


def serve_forks(descriptor: int, preload: Sequence[str], run_forked: RunForked) -> int:
    """Fork a process for each request on the socket, until it closes. Return the server's own exit code."""
    adopt_orphans()
    connection = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    refused = _fork_hazard(preload)
    # What every fork would import at its end, to send its result.
    importlib.import_module("benchmate.records")
    connection.sendall((refused or _READY).encode())
    if refused:
        return 1
    while (request := _next_request(connection)) is not None:
        name, result, output = request
        known = child_pids()
        pid = _fork_case(connection, name, result, output, run_forked)
        os.close(result)
        os.close(output)
        connection.sendall(str(pid).encode())
        # The group is ended before its leader is reaped: until then nobody else can have its number.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        signal_group(pid)
        _, status = os.waitpid(pid, 0)
        kill_strays(known)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    return 0


def _fork_hazard(preload: Sequence[str]) -> str:
    """Import the modules. Return why a fork of this process would lack something that it needs, empty when it would not."""
    for name in preload:
        try:
            importlib.import_module(name)
        except ImportError as error:
            return f"--preload {name}: {error}. Leave it out"
    device = holds_device()
    if device:
        return f"not safe: the program holds a device once it is imported ({device}). Make that part of setup"
    threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if threads:
        return f"not safe: the program starts a thread when it is imported ({threads[0]}). Make that part of setup"
    return ""


def _next_request(connection: socket.socket) -> tuple[str, int, int] | None:
    """Return the name of a case and the descriptors for its result and output. None when there will be no more."""
    with contextlib.suppress(OSError, ValueError):
        data, (result, output), *_ = socket.recv_fds(connection, 65536, 2)
        return data.decode(), result, output
    return None


def _fork_case(connection: socket.socket, name: str, result: int, output: int, run_forked: RunForked) -> int:
    """Fork the process of a case. Return, in the server only, once the fork leads a session of its own."""
    # Else what is still in the buffers would be written twice, by the server and by the fork.
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
    # Before the answer: a group of this number does not exist until then, and a signal to it would reach nobody.
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
        # What the program set when it was imported was meant for a program, not for a case that is over its limit.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = run_forked(name, result)
        # As a fresh interpreter does before it exits: a thread that goes on is seen by the runner, which waits for the end.
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Not sys.exit: the handlers and threads of the server are not the fork's to end.
        os._exit(code)
