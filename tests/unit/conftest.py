"""Runs a command line as the program does, in this process: what it prints, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from milabench import cli


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _devices_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the machine measures meanwhile holds no device that a test asks for."""
    monkeypatch.setenv("MILABENCH_LOCK_DIR", str(tmp_path_factory.getbasetemp() / "locks"))


@pytest.fixture
def milabench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Said]:
    """Runs `milabench ARGUMENTS` below an empty folder whose `base` is the base."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILABENCH_BASE", str(tmp_path / "base"))

    def run(*argv: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["milabench", *argv])
        capsys.readouterr()
        code = cli.run_command_line()
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run
