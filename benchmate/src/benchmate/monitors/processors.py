"""The processors that each step may use: how long they worked, for whom, and the shortages of the machine meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import chain

from benchmate.kernel_files import read_kernel_file
from benchmate.monitors.process_tree import PAGE, TICKS

PRESSURES = ("cpu", "memory", "io")
SWAPPED = (b"pswpin", b"pswpout")


@dataclass(slots=True)
class ProcessorUse:
    """Seconds since the first reading: all work on the processors of a step, our part, and steal."""

    processors: int = 0
    busy_s: float = 0.0
    ours_s: float = 0.0
    steal_s: float = 0.0


class Processors:
    """Reads the work of some steps' processors. `leaders` are the pids of the steps.

    The processors of a step are those that its leader may use. Steps that share any of them are not foreign to each other:
    `ours` is the work of all their process trees.
    """

    def __init__(
        self,
        leaders: Iterable[int],
        proc: str = "/proc",
        affinity: Callable[[int], Set[int]] = os.sched_getaffinity,
    ) -> None:
        self._proc = proc
        self._affinity = affinity
        self._allowed: dict[int, Set[int]] = {leader: set() for leader in leaders}
        self._uses = {leader: ProcessorUse() for leader in self._allowed}
        self._last: tuple[float, Mapping[int, tuple[float, float]], Mapping[int, float]] | None = None

    def update(self, now_s: float, cpu_s: Mapping[int, float]) -> None:
        """Read the processors. `cpu_s` is the work of each leader's tree so far, `now_s` the time by a monotonic clock."""
        times = self._times()
        for leader in self._allowed:
            # Again each time: a program such as numactl sets it after the step has begun. Its leader may have ended.
            with contextlib.suppress(OSError):
                self._allowed[leader] = self._affinity(leader)
        if self._last is not None:
            wall_s = now_s - self._last[0]
            for leader, use in self._uses.items():
                shared, leaders = self._sharing(leader)
                known = [(times[cpu], self._last[1][cpu]) for cpu in shared if cpu in times and cpu in self._last[1]]
                use.processors = len(shared)
                use.busy_s += sum(wall_s - (now[0] - before[0]) for now, before in known)
                use.steal_s += sum(now[1] - before[1] for now, before in known)
                use.ours_s += sum(cpu_s[other] - self._last[2][other] for other in leaders)
        self._last = (now_s, times, dict(cpu_s))

    def data(self, leader: int) -> dict[str, object]:
        """Return `host` of a step's `process` record."""
        use = self._uses[leader]
        return {
            "processors": use.processors,
            "busy_s": round(use.busy_s, 3),
            "ours_s": round(use.ours_s, 3),
            "steal_s": round(use.steal_s, 3),
        }

    def _sharing(self, leader: int) -> tuple[Set[int], Set[int]]:
        """Return the processors of a step and of all that share any with it, and the leaders of these."""
        processors, leaders = set(self._allowed[leader]), {leader}
        while more := {each for each, allowed in self._allowed.items() if each not in leaders and allowed & processors}:
            leaders |= more
            processors.update(chain.from_iterable(self._allowed[each] for each in more))
        return processors, leaders

    def _times(self) -> dict[int, tuple[float, float]]:
        """Return of each processor the seconds without work of a process, stolen ones among them, and the stolen ones.

        All but work, not work: the kernel measures idle time, but on most machines it samples the work, at every tick.
        Interrupts are the work of no process.
        """
        times = {}
        for line in read_kernel_file(f"{self._proc}/stat").splitlines():
            name, *fields = line.split()
            if name.startswith(b"cpu") and name != b"cpu":
                # user nice system idle iowait irq softirq steal
                ticks = [int(field) for field in fields[3:8]]
                times[int(name[3:])] = (sum(ticks) / TICKS, ticks[4] / TICKS)
        return times


def pressure(proc: str = "/proc") -> dict[str, object]:
    """Return the shortages of the machine so far: seconds in which some process waited for each kind, and bytes swapped.

    Memory includes pages of files that were dropped too soon. Values that the kernel does not give are absent.
    """
    data: dict[str, object] = {}
    waited_s = {}
    for name in PRESSURES:
        some, _, total_us = read_kernel_file(f"{proc}/pressure/{name}").partition(b"\n")[0].partition(b" total=")
        if some.startswith(b"some") and total_us.isdigit():
            waited_s[name] = round(int(total_us) / 1e6, 3)
    if waited_s:
        data["pressure_s"] = waited_s
    pages = dict(line.split() for line in read_kernel_file(f"{proc}/vmstat").splitlines() if b" " in line)
    if all(name in pages for name in SWAPPED):
        data["swap_bytes"] = sum(int(pages[name]) for name in SWAPPED) * PAGE
    return data
