"""A process that leaves its terminal: what is still told there, which signals still reach it, and what does not end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.processes import CEILING_S, is_gone, until

from .conftest import PROGRAMS


@pytest.fixture
def stays(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The process that stays in the terminal; its other half has left by now, and has said so."""
    process = subprocess.Popen(
        [sys.executable, PROGRAMS / "leaves.py", tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the other half")
        yield process
    finally:
        (tmp_path / "go").touch()
        process.communicate(timeout=CEILING_S)
        until(lambda: is_gone(other_half(tmp_path)), "the end of the other half")


def other_half(folder: Path) -> int:
    return int((folder / "pid").read_text())


def test_what_it_says_is_told_until_it_lets_go_and_stands_in_its_log_once_it_has_one(
    stays: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert os.getsid(other_half(tmp_path)) == other_half(tmp_path)
    (tmp_path / "go").touch()
    said = stays.communicate(timeout=CEILING_S)
    assert said == (f"{tmp_path} None\n", "said while tied\nsaid while held\n")
    until((tmp_path / "done").exists, "its end")
    assert (tmp_path / "orchestrator.log").read_text() == "said while held\nsaid alone\nsaid by another\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_asks_the_one_that_stayed_to_end_means_both(
    stays: subprocess.Popen[str], tmp_path: Path, number: int
) -> None:
    stays.send_signal(number)
    assert stays.communicate(timeout=CEILING_S)[0] == "None 130\n"
    assert is_gone(other_half(tmp_path))
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_a_terminal_or_a_first_half_that_goes_away_does_not_end_it(
    stays: subprocess.Popen[str], tmp_path: Path, number: int
) -> None:
    stays.send_signal(number)
    if number == signal.SIGKILL:
        stays.wait(CEILING_S)
    (tmp_path / "go").touch()
    until((tmp_path / "done").exists, "its end")
    assert "said alone" in (tmp_path / "orchestrator.log").read_text()


def test_the_signal_that_killed_it_is_told(stays: subprocess.Popen[str], tmp_path: Path) -> None:
    os.kill(other_half(tmp_path), signal.SIGKILL)
    assert stays.communicate(timeout=CEILING_S)[0] == "None -9\n"


def test_a_process_with_threads_is_not_parted(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAMS / "leaves.py", tmp_path, "threads"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "does not end" in done.stderr) == (1, True)
