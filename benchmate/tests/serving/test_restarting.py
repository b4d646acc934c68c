"""What starts a server again when it ends, and ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest
from child_process import started

PREFIX = [sys.executable, "-m", "benchmate.serving.restarting"]
LEAVES_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep({seconds})
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        ((), 2, "error: expected a command"),
        (("--",), 2, "error: expected a command"),
        (("--", "/nowhere/server"), 127, "error: /nowhere/server: No such file or directory"),
    ],
)
def test_a_command_that_cannot_be_started_is_one_line(command: Sequence[str], code: int, line: str) -> None:
    done = subprocess.run([*PREFIX, *command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_what_a_server_leaves_is_killed_before_it_is_started_again() -> None:
    command = [*PREFIX, "--", sys.executable, "-c", LEAVES_A_CHILD.format(seconds=0)]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as restarting:
        assert restarting.stdout is not None
        first, second = (int(restarting.stdout.readline()) for _ in range(2))
        assert not is_running(first)
        restarting.terminate()
        restarting.wait(60)
    assert not is_running(second)


def test_it_ends_with_its_server_and_leaves_nothing() -> None:
    command = [*PREFIX, "--", sys.executable, "-c", LEAVES_A_CHILD.format(seconds=600)]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as restarting:
        assert restarting.stdout is not None
        child = int(restarting.stdout.readline())
        restarting.send_signal(signal.SIGINT)
        _, stderr = restarting.communicate(timeout=60)
    assert restarting.returncode == 128 + signal.SIGINT
    assert "started again" not in stderr
    assert not is_running(child)
