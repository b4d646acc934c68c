"""Fresh processes, supervised from start to last descendant: result, output, time limit, exit code. Unaware of their programs."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmate.kernel_files import control_group, process_stat, read_kernel_file
from benchmate.result_channel import SUPERVISOR_PID, prctl

FORWARDED_BYTES = 1 << 20
"""How much of a process's output is shown. Of the rest only the tail is kept."""
TAIL_BYTES = 4096
RESULT_BYTES = 16 << 20

_GRACE_S = 0.5  # between TERM and KILL
_LEAVING_S = 5.0  # for what a program does after its result: the time limit was for the result
_SET_SUBREAPER = 36  # prctl(2)


@dataclass(frozen=True, slots=True)
class SupervisedProcess:
    """A running process: leader of a session and a group of its own."""

    pid: int
    ended: int
    """A descriptor that becomes readable once the leader has ended."""
    close: Callable[[], int | None]
    """Kill the group and processes that left it, reap the leader. Return its exit code as of subprocess, None when unknown."""


Start = Callable[[int, int], SupervisedProcess]
"""Start a process, given the descriptors for its result and for its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a supervised process ended.

    `result` is the line that it sent, empty when it sent no whole line. `code` the exit code as of subprocess, None when
    unknown. `is_late` tells that it was terminated at its limit. `was_oom` that the kernel killed it for memory. `seconds` is
    from its start to its end, `tail` the end of its output.
    """

    result: bytes = b""
    code: int | None = 0
    is_late: bool = False
    was_oom: bool = False
    seconds: float = 0.0
    tail: str = ""

    @property
    def how(self) -> str:
        """The exit code or signal, in words."""
        if self.code is not None and self.code < 0:
            with contextlib.suppress(ValueError):
                return f"ended by {signal.Signals(-self.code).name}"
        return f"exit code {self.code}"


def supervise(
    start: Start, show: Callable[[bytes], object], *, timeout_s: float = math.inf, leaving_s: float = _LEAVING_S
) -> ProcessExit:
    """Start a process and watch it until all its processes have ended. `show` gets the beginning of its output as it comes.

    At `timeout_s` without a result, or `leaving_s` after it, the group gets TERM and then KILL. Passes on the errors of `start`.
    """
    oom_kills_before, began = oom_kill_count(), time.monotonic()
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        result, output = _pipe(ours, theirs), _pipe(ours, theirs)
        process = start(result[1], output[1])
        # A pipe ends when its last writing end is closed, ours included.
        theirs.close()
        watch = _Watch(process, result[0], output[0], show)
        try:
            is_late = watch.wait(began + timeout_s, leaving_s)
        finally:
            code = process.close()
            watch.drain()
    # Without its newline it was cut off in the middle, and may be anything.
    line, newline, _ = watch.result.partition(b"\n")
    return ProcessExit(
        result=bytes(line) if newline else b"",
        code=code,
        is_late=is_late,
        was_oom=code == -signal.SIGKILL and oom_kill_count() > oom_kills_before,
        seconds=time.monotonic() - began,
        tail=watch.tail.decode("utf-8", "replace"),
    )


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    ours.callback(os.close, reading)
    theirs.callback(os.close, writing)
    return reading, writing


class _Watch:
    """Reads the pipes of a process until it ends, or must."""

    def __init__(self, process: SupervisedProcess, result: int, output: int, show: Callable[[bytes], object]) -> None:
        self._process, self._show = process, show
        self._pipes = {result: self._take_result, output: self._take_output}
        self._output_bytes = 0
        self.result = bytearray()
        self.tail = b""
        for descriptor in self._pipes:
            os.set_blocking(descriptor, False)

    def wait(self, deadline: float, leaving_s: float) -> bool:
        """Wait until the leader has ended. Return True when it had to be terminated."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._process.ended, *self._pipes):
                selector.register(descriptor, selectors.EVENT_READ)
            has_result = False
            while time.monotonic() < deadline:
                if self._turn(selector, deadline):
                    return False
                if not has_result and b"\n" in self.result:
                    has_result = True
                    deadline = time.monotonic() + leaving_s
            # First the request: a program that removes its shared memory and temporary files leaves the next one a clean machine.
            signal_group(self._process.pid, signal.SIGTERM)
            grace_ends = time.monotonic() + _GRACE_S
            while time.monotonic() < grace_ends and not self._turn(selector, grace_ends):
                pass
        return True

    def _turn(self, selector: selectors.BaseSelector, deadline: float) -> bool:
        """Read the next data before the deadline. Return True when the leader has ended."""
        left_s = deadline - time.monotonic()
        for key, _ in selector.select(None if left_s == math.inf else max(0.0, left_s)):
            if key.fd == self._process.ended:
                return True
            if self._read(key.fd) == b"":
                selector.unregister(key.fd)
        return False

    def drain(self) -> None:
        """Read the rest of the pipes, without waiting for whoever holds their other ends."""
        for descriptor in self._pipes:
            while self._read(descriptor):
                pass

    def _read(self, descriptor: int) -> bytes | None:
        """Return the bytes that are there: empty at the end, None when there are none now."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return None
        self._pipes[descriptor](data)
        return data

    def _take_result(self, data: bytes) -> None:
        if len(self.result) < RESULT_BYTES:
            self.result += data

    def _take_output(self, data: bytes) -> None:
        room = FORWARDED_BYTES - self._output_bytes
        if room > 0 and data:
            self._show(data[:room])
        self._output_bytes += len(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        if room > 0 and self._output_bytes >= FORWARDED_BYTES:
            self._show(f"\n... output beyond {FORWARDED_BYTES} bytes is not shown\n".encode())


def spawn(
    argv: Sequence[str], *, output: int | None = None, pass_fds: Sequence[int] = (), env: Mapping[str, str] = os.environ
) -> SupervisedProcess:
    """Start a program in a session of its own, without input. Without `output` it writes where this process does.

    Raises OSError when it cannot be started.
    """
    # Before the start: what is there already is not this process's, and must outlive it.
    known = child_pids()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=pass_fds,
        # Ctrl-C in the terminal reaches us and not it, and one killpg reaches whatever it has started.
        start_new_session=True,
        env={**env, SUPERVISOR_PID: str(os.getpid())},
    )
    ended = end_descriptor(process.pid)

    def close() -> int:
        # Before the leader is reaped: as long as it is there, nobody else can have its number.
        signal_group(process.pid)
        code = process.wait()
        os.close(ended)
        kill_strays(known)
        return code

    return SupervisedProcess(process.pid, ended, close)


def end_descriptor(pid: int) -> int:
    """Return a descriptor that becomes readable when a child ends. The child is not reaped."""
    # Linux before 5.3, and some sandboxes, have no pidfd: a thread waits instead, without taking the exit code away.
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    reading, writing = os.pipe()

    def wait() -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(writing)

    threading.Thread(target=wait, daemon=True).start()
    return reading


def adopt_orphans() -> None:
    """Become the parent of processes that our descendants abandon from here on, in whichever session they hide."""
    # Else an orphan goes to process 1, out of our sight, and holds the device of the next case.
    prctl(_SET_SUBREAPER, 1)


def child_pids() -> set[int]:
    """Return the children of this process that have not been waited for."""
    # A child stays in its list until it is waited for. Some kernels are built without the lists.
    try:
        tasks = Path("/proc/self/task").iterdir()
        return {int(pid) for task in tasks for pid in (task / "children").read_bytes().split()}
    except OSError:  # or a thread has ended, and another one has its children
        return _child_pids_by_parent()


def _child_pids_by_parent() -> set[int]:
    """Return the same from the parents of all processes of the machine."""
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    ours = str(os.getpid()).encode()
    return {pid for pid in pids if process_stat(pid)[1:2] == [ours]}


def kill_strays(known: set[int]) -> None:
    """Kill all children but the known ones, and their own abandoned children.

    A child that a driver holds in the kernel may not end. After a while it is left.
    """
    deadline = time.monotonic() + _LEAVING_S
    # Again and again: each one that dies hands its own children to us.
    while (strays := child_pids() - known) and time.monotonic() < deadline:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)


def signal_group(leader: int, number: int = signal.SIGKILL) -> None:
    """Signal a process group. A group that is gone, or may not be signalled, is left alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def oom_kill_count() -> int:
    """Return how many processes the kernel has killed for memory so far, on this machine and in this control group."""
    # vmstat counts the machine's; the limit of a container is counted in its control group (version 2: the line with 0::) alone.
    events = f"/sys/fs/cgroup{control_group('/proc/self/cgroup').rstrip('/')}/memory.events"
    lines = [*read_kernel_file("/proc/vmstat").splitlines(), *read_kernel_file(events).splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"oom_kill "))
