"""What keeps py-spy from a process, by real means: another user, a container without SYS_PTRACE, yama's ptrace_scope."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from milabench.execute.agent.helpers import PROGRAM
from tests.processes import started

PROGRAMS = str(Path(sys.executable).parent)
pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="only root can give up what it may do"),
    pytest.mark.skipif(shutil.which("py-spy", path=PROGRAMS) is None, reason="py-spy is not installed"),
]

LIBC = ctypes.CDLL(None, use_errno=True)
CAP_SYS_PTRACE = 19
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 24, 38, 22, 2
PTRACE, PROCESS_VM_READV, PROCESS_VM_WRITEV = 101, 310, 311  # on x86-64
SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)"


def without_ptrace() -> None:
    """Give up the capability, as a container does."""
    assert LIBC.prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0) == 0


def without_the_calls() -> None:
    """Have the kernel refuse the calls, as the filter of docker does in a container without the capability."""
    without_ptrace()
    refused = (PTRACE, PROCESS_VM_READV, PROCESS_VM_WRITEV)
    lines = [(0x20, 0, 0, 0)]  # the number of the call
    lines += [(0x15, len(refused) - index, 0, number) for index, number in enumerate(refused)]
    lines += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | 1)]  # allowed, EPERM
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    header = ctypes.create_string_buffer(struct.pack("HP", len(lines), ctypes.addressof(program)))
    assert LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0) == 0


def collected(
    pid: int,
    give_up: Callable[[], None] | None = None,
    *,
    before: Sequence[str] = (),
    python: str = sys.executable,
    **more: Any,
) -> list[str]:
    """What is said to be absent of a process."""
    done = subprocess.run(
        [*before, python, "-I", "-S", PROGRAM, "feature", "hangs.on_node.collecting", "--pids", str(pid)],
        preexec_fn=give_up,
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.defpath}:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
        check=False,
        **more,
    )
    assert done.returncode == 0, done.stderr
    evidence = json.loads(done.stdout)
    (process,) = evidence["processes"]
    assert process["pid"] == pid
    assert bool(process["samples"]) == (not evidence["absent"])
    absent: list[str] = evidence["absent"]
    return absent


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The pid of a Python program that sleeps, with all that root may do."""
    with started([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        yield process.pid
        process.kill()


def test_root_reads_it(sleeper: int) -> None:
    assert collected(sleeper) == []


def test_a_container_without_the_capability_is_told_how_to_get_it(sleeper: int) -> None:
    assert collected(sleeper, without_ptrace) == [
        "py-spy may not read them in this container: start it with --cap-add=SYS_PTRACE"
    ]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86-64")
def test_the_filter_of_a_container_is_told_from_other_failures(sleeper: int) -> None:
    assert collected(sleeper, without_the_calls) == [
        "py-spy may not read them in this container: start it with --cap-add=SYS_PTRACE"
    ]


def test_the_scope_of_yama_is_named_with_the_setting(sleeper: int) -> None:
    # A kernel without yama has no such file, and no kernel lets a test change it: what is read is put there for this process.
    script = (
        "mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama && "
        'echo 1 > /proc/sys/kernel/yama/ptrace_scope && exec setpriv --bounding-set -sys_ptrace "$@"'
    )
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace can be made here")
    assert collected(sleeper, before=("unshare", "-m", "sh", "-c", script, "sh")) == [
        "py-spy may not read them, kernel.yama.ptrace_scope is 1: sysctl kernel.yama.ptrace_scope=0"
    ]


def test_processes_of_another_user_are_named_with_that_user(sleeper: int) -> None:
    python = shutil.which("python3", path=os.defpath)
    nobody: Any = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    reads = ["-c", "import sys; open(sys.argv[1])", PROGRAM]
    if python is None or subprocess.run([python, *reads], capture_output=True, check=False, **nobody).returncode:
        pytest.skip("nobody else may start the agent's program here")
    assert collected(sleeper, python=python, **nobody) == [
        "py-spy may not read processes of root: run milabench as that user"
    ]
