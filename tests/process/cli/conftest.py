"""Runs the command as a user does: a process of its own, with a home and a base of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUITE = ROOT / "tests" / "suite" / "odd.yaml"
HERE = ("--use-current-env", "--config", str(SUITE))


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The user's variables: an empty home, and a base that is new."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    base = str(tmp_path / "base")
    # Somebody else's run may hold this machine's devices: these tests are not about who measures first.
    return {
        **kept,
        "HOME": str(home),
        "MILABENCH_BASE": base,
        "XDG_CACHE_HOME": str(home / "cache"),
        "MILABENCH_WAIT": "1",
        "MILABENCH_LOCK_DIR": str(tmp_path / "locks"),
    }


@pytest.fixture
def milabench(environ: dict[str, str]) -> Callable[..., Said]:
    """Runs `milabench ARGUMENTS` to its end."""

    def run(*argv: str, cwd: Path = ROOT, **more: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *argv],
            env={**environ, **more},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def prepared(milabench: Callable[..., Said]) -> Callable[..., Said]:
    """`milabench`, with the data of the odd suite made."""
    said = milabench("prepare", *HERE, "--exclude", "unprepared")
    assert said.code == 0, said.err
    return milabench
