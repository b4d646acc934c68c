"""Runs `milabench` commands in forks of one process that has imported all of it: a start takes 20 ms instead of 130 to 540.

A command gets what a start of its own would give it: arguments, environment, folder, standard streams, a number, a place in the
process group and session of the tests; only for the disk it does not wait. It has the server's interpreter: where variables say
how that starts (`can_serve`), a command is started for real.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tests import fork_client

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "milabench"
OF_THE_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "GLIBC_", "COVERAGE_")
"""Variables that an interpreter, its C library or a measurement reads once, when it starts."""
OF_THE_TESTS = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
"""What this process began with, whatever a test has changed by the time that it needs the server."""
# What a child process of its own is: the names of milabench 1.3 are for benchmarks, the agent is another program.
NOT_IMPORTED = ("milabench.compat13.names", "milabench.__main__", "milabench.execute.agent.__main__")


def of_the_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those variables that a fork cannot take over."""
    return {name: value for name, value in environ.items() if name.startswith(OF_THE_START)}


def can_serve(environ: Mapping[str, str]) -> bool:
    """Return whether a fork with these variables is what a start with them would be."""
    return of_the_start(environ) == of_the_start(OF_THE_TESTS)


class Server:
    """A process that forks for commands. It ends with this one, by the end of its standard input."""

    def __init__(self) -> None:
        self.address = f"{tempfile.mkdtemp(prefix='fork-server-')}/socket"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.address)
            listening.listen(128)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(listening.fileno())],
                cwd=ROOT,
                env=OF_THE_TESTS,
                pass_fds=[listening.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the process and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(Path(self.address).parent, ignore_errors=True)  # one that was killed has left it


_lock = threading.Lock()
_servers: list[Server] = []


def server() -> Server:
    """Return the server of this process; another one after one that has ended, as the ceiling of a test ends it."""
    with _lock:
        if not _servers or _servers[-1].process.poll() is not None:
            _servers.append(Server())
        return _servers[-1]


class Command:
    """`python -m MODULE ARGV` in a fork, on these standard streams, which are closed here.

    `memory`: the most bytes of address space that it gets; 0 is as much as it wants. Raises AssertionError when the server ends
    before it has told the end of the command.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        cwd: Path,
        streams: Sequence[int],
        module: str = PROGRAM,
        memory: int = 0,
    ) -> None:
        self.pid = 0
        try:
            self._asked = fork_client.ask(
                server().address, module, list(argv), dict(environ), str(cwd), list(streams), memory
            )
        finally:
            for stream in streams:
                os.close(stream)
        self._answers = self._asked.makefile("rb")
        self.pid = self._answer()

    def _answer(self) -> int:
        try:
            line = self._answers.readline()
        except ConnectionResetError:
            line = b""
        assert line, "the process that forks for commands (tests/fork_server.py) has ended"
        return int(line)

    def wait(self) -> int:
        """Return its exit code, or its signal as a negative number."""
        code = os.waitstatus_to_exitcode(self._answer())
        self.pid = 0
        return code

    def end(self) -> None:
        """Kill it, where it has not been waited for."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._answers.close()
        self._asked.close()


def program(folder: Path) -> Path:
    """Write `milabench` for the scripts of a shell into the folder, which runs in forks; return the program."""
    path = folder / PROGRAM
    words = [sys.executable, "-I", "-S", fork_client.__file__, server().address, sys.executable]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)
    return path


def import_all() -> None:
    """Import what a command may need; what cannot be imported here cannot be by a command either, which says so."""
    package = importlib.import_module(PROGRAM)
    for module in pkgutil.walk_packages(package.__path__, f"{PROGRAM}."):
        if not module.name.startswith(NOT_IMPORTED):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def serve(listening: socket.socket) -> str:
    """Fork for each request until the end of standard input; return only in the forks: the module to run."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by its pidfd: number, where its end is told
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    poll.register(0, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in running:
                pid, asking = running.pop(descriptor)
                poll.unregister(descriptor)
                os.close(descriptor)
                tell(asking, os.waitpid(pid, 0)[1])
                asking.close()
            elif descriptor == 0:  # also where the process with the tests was killed
                shutil.rmtree(Path(listening.getsockname()).parent)
                sys.exit()
            else:
                asking, _ = listening.accept()
                _, files, _, _ = socket.recv_fds(asking, 1, 4)
                if len(files) != 4:  # who asked was ended meanwhile
                    asking.close()
                    continue
                with os.fdopen(files[0], "rb") as text:
                    text.seek(0)
                    module, argv, environ, cwd, memory = json.load(text)
                if not can_serve(environ):
                    asking.sendall(fork_client.REFUSED)
                    asking.close()
                elif pid := os.fork():
                    tell(asking, pid)
                    running[pidfd := os.pidfd_open(pid)] = pid, asking
                    poll.register(pidfd, select.POLLIN)
                else:
                    listening.close()
                    asking.close()
                    for other, (_, told) in running.items():
                        os.close(other)
                        told.close()
                    take_over(argv, environ, cwd, files[1:])
                    if memory:
                        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
                    return str(module)
                for file in files[1:]:
                    os.close(file)


def tell(asking: socket.socket, number: int) -> None:
    """Send a number as a line; whoever asked may have gone."""
    with contextlib.suppress(BrokenPipeError):
        asking.sendall(b"%d\n" % number)


def take_over(argv: Sequence[str], environ: Mapping[str, str], cwd: str, streams: Sequence[int]) -> None:
    """Become what a start with these would be."""
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["", *argv]  # runpy fills in the first
    sys.path[0] = cwd


def main() -> NoReturn:
    """Serve the socket that the first argument names; in a fork, run the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and they end this
    listening = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    import_all()
    setattr(os, "fsync", lambda descriptor: None)  # noqa: B010  # as tests/conftest.py does
    gc.freeze()
    gc.enable()
    runpy.run_module(serve(listening), run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    main()
