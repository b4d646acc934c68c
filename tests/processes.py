"""Processes of tests: started, waited for, and ended whatever happens."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# Generous, for a busy machine: it is only reached when something is broken. Below the ceiling of a whole test.
CEILING_S = 120.0
REPORTING_S = 5.0


@contextlib.contextmanager
def started(argv: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Yield a new process, which has ended at the end of the block, whatever happens in it: who leaves early has it killed.

    `with subprocess.Popen(...)` waits there without end when an assertion in the block fails.
    """
    process = subprocess.Popen(argv, **options)
    try:
        yield process
        end_of(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def end_of(process: subprocess.Popen[Any], ceiling_s: float = CEILING_S) -> int:
    """Wait for a process and return its exit code; at the ceiling a Python writes its stacks, and AssertionError is raised."""
    try:
        return process.wait(ceiling_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REPORTING_S)
        raise AssertionError(
            f"has not ended after {ceiling_s:g} s; its stacks are on its stderr: {process.args}"
        ) from None


def until(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait for something that must come, and return what the condition says then."""
    deadline = time.monotonic() + CEILING_S
    while not (result := condition()):
        assert time.monotonic() < deadline, f"never came true: {what or condition}"
        time.sleep(0.02)
    return result


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody reaps has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in (b"Z", b"X")
