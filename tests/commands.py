"""Runs `milabench` as a user does, in a process of its own, and keeps what it answered.

The process is a fork of one that has imported everything (tests/fork_server.py). Tests of what only a start shows (terminals,
signals, completion, imports) start it themselves.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import fork_server

ROOT = Path(__file__).resolve().parents[1]
PYTHON = shlex.quote(sys.executable)
"""This Python, as a word of a line for the shell."""


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


def milabench_in(environ: Mapping[str, str], *, memory_mib: int = 0, forks: bool = True) -> Callable[..., Said]:
    """What runs `milabench ARGUMENTS` to its end with these variables; none of its ends may be a traceback.

    `memory_mib`: the most address space that it gets; without it as much as it wants. Without `forks` each is started anew.
    """

    def run(*argv: str, cwd: Path = ROOT, **more: str) -> Said:
        variables = {**environ, **more}
        if forks and fork_server.can_serve(variables):
            said = forked(argv, variables, cwd, memory=memory_mib << 20)
        else:
            assert not memory_mib, "a start for real has no bounds here"
            command = [sys.executable, "-m", "milabench", *argv]
            done = subprocess.run(
                command, env=variables, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            )
            said = Said(done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in said.err, said.err
        return said

    return run


def forked(
    argv: Sequence[str],
    environ: Mapping[str, str],
    cwd: Path = ROOT,
    module: str = fork_server.PROGRAM,
    stdout: int | None = None,
    memory: int = 0,
) -> Said:
    """Run `python -m MODULE ARGV` to its end in a fork; with `stdout`, a descriptor, its output goes there.

    `memory`: the most bytes of address space that it gets; 0 is as much as it wants.
    """
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    said = {}

    def read(descriptor: int) -> None:
        with os.fdopen(descriptor) as stream:
            said[descriptor] = stream.read()

    readers = [threading.Thread(target=read, args=(descriptor,), daemon=True) for descriptor in (out, err)]
    if stdout is not None:
        os.dup2(stdout, out_end, inheritable=False)
    empty = os.open(os.devnull, os.O_RDONLY)
    command = fork_server.Command(argv, environ, cwd, (empty, out_end, err_end), module, memory)
    try:
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return Said(command.wait(), said[out], said[err])
    finally:
        command.end()
