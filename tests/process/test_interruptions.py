"""Ctrl-C, TERM and HUP at any instant of a command's life: exit code 130, one line, whole records, no process."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.interruptions import interrupted, interrupted_in_the_loop
from tests.process.kill_points import ROOT


def test_a_command_that_is_interrupted_at_any_instant_ends_in_order(tmp_path: Path) -> None:
    assert interrupted(range(16), tmp_path) == {}


def test_a_signal_while_an_event_loop_is_made_or_closed_ends_in_order(tmp_path: Path) -> None:
    assert interrupted_in_the_loop(0, 16, tmp_path) == {}


def test_an_event_loop_is_run_only_where_signals_are_held() -> None:
    found = {
        path.name
        for path in (ROOT / "orchestrator" / "milabench").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("run", "Runner", "new_event_loop", "run_until_complete")
        if isinstance(node.value, ast.Name) and node.value.id == "asyncio"
    }
    assert found == {"interrupts.py"}


BEGIN = "import os, signal, sys, time\nfrom milabench.execute.interrupts import Interrupts, interrupts, run_held\n"


def ran(code: str) -> tuple[int, str, str]:
    """A program that has taken the signals over: its exit code and what it says."""
    program = BEGIN + "Interrupts().take_over()\n" + code
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_raises_once(number: int) -> None:
    code = (
        f"try:\n    os.kill(os.getpid(), {int(number)})\n"
        f"except KeyboardInterrupt:\n    os.kill(os.getpid(), {int(number)})\n    print('tidied up')\n"
    )
    assert ran(code) == (0, "tidied up\n", "")


def test_one_that_a_finaliser_swallows_is_raised_again_and_not_shown() -> None:
    code = (
        "class Swallows:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGTERM)\n"
        "try:\n    Swallows()\n    signal.pause()\n"
        "except KeyboardInterrupt:\n    print('raised')\n"
    )
    assert ran(code) == (0, "raised\n", "")


def test_one_that_is_held_is_told_to_whoever_listens_next() -> None:
    code = (
        "with interrupts().held():\n    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    with interrupts().heard_by(lambda: print('heard')):\n        print('listening')\n"
    )
    assert ran(code) == (0, "heard\nlistening\n", "")


def test_one_that_nobody_heard_is_raised_when_the_holding_ends() -> None:
    code = (
        "try:\n    with interrupts().held():\n        os.kill(os.getpid(), signal.SIGHUP)\n        print('held')\n"
        "except KeyboardInterrupt:\n    print('raised')\n"
    )
    assert ran(code) == (0, "held\nraised\n", "")


def test_none_matters_once_the_end_is_decided() -> None:
    code = "interrupts().over()\nos.kill(os.getpid(), signal.SIGTERM)\nprint('ended as decided')\n"
    assert ran(code) == (0, "ended as decided\n", "")


def test_asking_for_long_leaves_a_tidying_up_that_hangs() -> None:
    code = (
        "import milabench.execute.interrupts as module\nmodule.PATIENCE_S = 0.0\n"
        "try:\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "except KeyboardInterrupt:\n    os.kill(os.getpid(), signal.SIGTERM)\n    print('hung')\n"
    )
    assert ran(code) == (130, "", "interrupted\n")


def test_what_was_ignored_stays_ignored() -> None:
    program = (
        "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + BEGIN + "Interrupts().take_over()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\nprint('goes on')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "goes on\n")
