"""The process table, read from /proc."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
UNKILLABLE_S = 10.0  # a process that survives SIGKILL for so long hangs in the kernel


class Process:
    """A line of the process table. `start` (ticks since boot) tells two users of the same pid apart."""

    __slots__ = ("group", "name", "parent", "pid", "session", "start")

    def __init__(self, pid: int, parent: int, group: int, session: int, start: int, name: str) -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.session = session
        self.start = start
        self.name = name

    def signal(self, number: int) -> None:
        """Signal this very process, not a later process with its pid."""
        # Leaves a race of microseconds; a pidfd, which does not, needs Python 3.9 and Linux 5.3.
        now = read_process(self.pid)
        if now is not None and now.start == self.start:
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)


def read_process(pid: int) -> Process | None:
    """Return the process with this pid. None when there is none or it is dead but for its parent's knowledge."""
    head, _, tail = read_bytes("/proc/%d/stat" % pid).rpartition(b")")  # a name may hold anything, parentheses too
    fields = tail.split()
    # The leader of a process may be dead while other threads of it work on.
    if not fields or (fields[0] in b"ZX" and int(fields[17]) <= 1):
        return None
    name = head.partition(b"(")[2].decode("utf-8", "backslashreplace")
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), name)


def processes() -> dict[int, Process]:
    """Return all live processes."""
    table = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in table if process is not None}


def descendants(table: dict[int, Process], roots: set[int]) -> set[int]:
    """Return the pids below `roots`, without them."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    below: set[int] = set()
    todo = list(roots)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in below:
                below.add(pid)
                todo.append(pid)
    return below - roots


def environment_of(pid: int) -> set[bytes]:
    """Return the start environment of a process, each NAME=value."""
    return set(read_bytes("/proc/%d/environ" % pid).split(b"\0"))


def command_of(process: Process) -> str:
    """Return the command line of a process, shortened. Its name when it has none."""
    return " ".join(argv_of(process.pid))[:100] or process.name


def argv_of(pid: int) -> list[str]:
    """Return the command line of a process. An empty word if it is gone."""
    return read_bytes("/proc/%d/cmdline" % pid).rstrip(b"\0").decode("utf-8", "backslashreplace").split("\0")


def describe_processes(members: list[Process]) -> str:
    """Return a description of processes for a person."""
    shown = ["%d (%s)" % (process.pid, command_of(process)) for process in members[:5]]
    return ", ".join(shown) + (" and %d more" % (len(members) - 5) if len(members) > 5 else "")


def holders_of(descriptors: list[int]) -> list[Process]:
    """Return the other processes that have the pipes or sockets behind these descriptors open."""
    wanted = {_target_of("/proc/self/fd/%d" % fd) for fd in descriptors} - {""}
    return [process for pid, process in processes().items() if pid != os.getpid() and _targets_of(pid) & wanted]


def _targets_of(pid: int) -> set[str]:
    """Return the open files of a process. Empty where we may not see them."""
    folder = "/proc/%d/fd/" % pid
    return {_target_of(folder + fd) for fd in list_folder(folder)}


def _target_of(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def signal_name(number: int) -> str:
    """Return the name of a signal: `SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def own_cpu_s() -> float:
    """Return the CPU seconds that this agent has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def host_reading() -> tuple[float, dict[str, tuple[float, float]], float] | None:
    """Return the monotonic time, of each of our processors its seconds without work and stolen ones, and our own work.

    Our work is the time of this agent and of ended children, s. None where the kernel does not tell.
    """
    mine = {b"cpu%d" % number for number in os.sched_getaffinity(0)}
    times = {}
    for line in read_bytes("/proc/stat").splitlines():
        name, _, fields = line.partition(b" ")
        if name in mine:
            # user nice system idle iowait irq softirq steal; all but work, see benchmate.monitors.processors
            ticks = [int(field) for field in fields.split()[3:8]]
            times[name.decode()] = (sum(ticks) * TICK_S, ticks[4] * TICK_S)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (time.monotonic(), times, own_cpu_s() + used.ru_utime + used.ru_stime) if times else None


def host_use() -> Callable[[], dict[str, float] | None]:
    """Begin to read the processors, and return a function for the use since then: number; seconds in all, busy, ours, stolen.

    `resolution_s` is how far the seconds may be wrong because the kernel counts ticks, at the most of 99 in 100
    readings.
    """
    before = host_reading()

    def use() -> dict[str, float] | None:
        after = host_reading()
        if before is None or after is None or before[1].keys() != after[1].keys():
            return None
        count, seconds = len(after[1]), after[0] - before[0]
        without = sum(after[1][name][0] - before[1][name][0] for name in after[1])
        stolen = sum(after[1][name][1] - before[1][name][1] for name in after[1])
        return {
            "processors": count,
            "seconds": round(seconds, 6),
            "busy_s": round(count * seconds - without, 6),
            "ours_s": round(after[2] - before[2], 6),
            "steal_s": round(stolen, 6),
            # Two roundings to a tick of each processor, and one more of the work that is not charged before a tick ends.
            "resolution_s": round(2.6 * TICK_S * math.sqrt(count / 4), 6),
        }

    return use


def read_text(path: str) -> str:
    """Return the text of a small file. Empty when it cannot be read."""
    return read_bytes(path).decode("utf-8", "replace")


def read_bytes(path: str) -> bytes:
    """Return the content of a small file. Empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def list_folder(path: str) -> list[str]:
    """Return the names in a folder. Empty when it cannot be read. Avoids the cost of importing `glob`."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def cgroups_of(pid: object) -> Iterator[tuple[list[str], str]]:
    """Yield the control groups of a process, a number or `self`: their controllers, none for version 2, and their paths."""
    for line in read_text("/proc/%s/cgroup" % pid).splitlines():
        _, controllers, path = line.split(":", 2)
        yield [name for name in controllers.split(",") if name], path.rstrip("/")
