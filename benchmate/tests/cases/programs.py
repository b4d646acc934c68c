"""Programs of cases, written where a test needs them and run as a user runs them."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CEILING_S = 60.0  # generous: it is only reached when something is broken
HEAD = "import os, signal, subprocess, sys, time\nimport benchmate.cases as benchmark\n\n"
FOOT = "\n\nif __name__ == '__main__':\n    benchmark.main()\n"


@dataclass(frozen=True)
class Said:
    """What a program answered."""

    code: int
    out: str
    err: str

    def rows(self) -> dict[str, dict[str, str]]:
        """The lines of CSV on standard output by name."""
        return {row["name"]: row for row in csv.DictReader(io.StringIO(self.out))}

    def json(self) -> Any:
        """Standard output, as strict JSON."""
        return json.loads(self.out, parse_constant=refuse)

    def google(self) -> list[dict[str, Any]]:
        """The entries of Google Benchmark's JSON."""
        return self.json()["benchmarks"]


class Program:
    """A file of cases."""

    def __init__(self, folder: Path, body: str) -> None:
        self.folder = folder
        self.file = folder / "cases.py"
        self.file.write_text(HEAD + textwrap.dedent(body) + FOOT)

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        """The program, running; without pauses between its cases."""
        return subprocess.Popen(
            [sys.executable, str(self.file), "-d", "0", *argv],
            cwd=self.folder,
            env={**os.environ, "MILABENCH_LOCK_DIR": str(self.folder / "locks"), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *argv: str, **env: str) -> Said:
        """What it says, having ended."""
        program = self.start(*argv, **env)
        try:
            out, err = program.communicate(timeout=CEILING_S)
        finally:
            program.kill()
        return Said(program.returncode, out, err)


def refuse(name: str) -> Any:
    """Strict JSON has no such constant."""
    raise ValueError(f"{name} is not JSON")


def until(condition: Callable[[], Any]) -> Any:
    """What the condition says once it is true."""
    deadline = time.monotonic() + CEILING_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.01)
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody reaps has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in (b"Z", b"X")
