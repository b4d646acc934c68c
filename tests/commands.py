"""Runs `milabench` as a user does, in a process of its own, and keeps what it answered."""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.processes import CEILING_S

ROOT = Path(__file__).resolve().parents[1]
PYTHON = shlex.quote(sys.executable)
"""This Python, as a word of a line for the shell."""
OF_A_BUSY_HOST = {"contended", "stalled"}
"""Reasons that a test's run may have for what else this machine does."""


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


def milabench_in(environ: Mapping[str, str], *, memory_mib: int = 0) -> Callable[..., Said]:
    """What runs `milabench ARGUMENTS` to its end with these variables; none of its ends may be a traceback.

    `memory_mib`: the most address space that it gets; without it as much as it wants.
    """

    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))

    def run(*argv: str, cwd: Path = ROOT, **more: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "milabench", *argv],
            env={**environ, **more},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            preexec_fn=limit_memory if memory_mib else None,
            timeout=CEILING_S if memory_mib else None,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    return run
