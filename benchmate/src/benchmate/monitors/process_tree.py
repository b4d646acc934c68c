"""The process tree of each step: its members, their processor time, memory and I/O."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmate.kernel_files import kernel_bytes, process_stat, read_kernel_file

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
THREADS_AT_ONCE = 256
"""Run delays are read less often the more threads there are: about this many in a reading, at 10 us each."""


@dataclass(slots=True)
class TreeProcess:
    """A process of a step as it was last seen alive: processor seconds, bytes of memory, bytes read and written.

    `reaped_s` are processor seconds of children that it has waited for, as the kernel adds them up, including short ones
    that were never seen. `vanished_s` are seconds of children that were seen and have gone, waited for or not. `delays` are the
    nanoseconds that each thread has waited for a processor, `ended_delay_ns` of ended threads.
    """

    start: int
    parent: int
    cpu_s: float = 0.0
    reaped_s: float = 0.0
    vanished_s: float = 0.0
    delays: dict[str, int] = field(default_factory=dict)
    ended_delay_ns: int = 0
    rss: int = 0
    threads: int = 0
    io: tuple[int, int] = (0, 0)

    @property
    def total_cpu_s(self) -> float:
        """Its own processor seconds and its ended children's."""
        return self.cpu_s + max(self.reaped_s, self.vanished_s)

    @property
    def delay_ns(self) -> int:
        """Nanoseconds that its threads have waited for a processor."""
        return self.ended_delay_ns + sum(self.delays.values())


@dataclass(slots=True)
class ProcessTree:
    """A leader and its descendants. `ended` has the processor time, delays and I/O of those that have ended."""

    members: dict[int, TreeProcess] = field(default_factory=dict)
    ended: TreeProcess = field(default_factory=lambda: TreeProcess(start=0, parent=0))
    peak_rss: int = 0
    pss: int | None = None
    delay_ns: int | None = None
    last: tuple[float, float] | None = None

    @property
    def parts(self) -> list[TreeProcess]:
        """The terms of its sums: the members, and all that have ended as another one."""
        return [*self.members.values(), self.ended]

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all its processes so far."""
        return sum(part.total_cpu_s for part in self.parts)


class ProcessTrees:
    """The trees of some leaders, kept up to date from /proc.

    Only new processes are examined to find the tree that they belong to: a machine may have thousands of others. A process
    whose parent has already gone is recognised by its session, which the agent gives to each leader.

    Processes in containers and those that srun starts are children of a service (`has_detached`: there may be some). Those that
    NVML names are recognised by the environment that the agent gives to `steps` of the run `run_marker`.
    """

    def __init__(
        self,
        leaders: Iterable[int],
        proc: str = "/proc",
        *,
        steps: Iterable[str] = (),
        run_marker: str | None = None,
        has_detached: bool = False,
    ) -> None:
        self._proc = proc
        self._step_entries = {f"MILABENCH_STEP={step}".encode() for step in steps}
        self._run_entry = f"MILABENCH_RUN_MARKER={run_marker}".encode()
        self._has_detached = has_detached
        self.trees = {leader: ProcessTree() for leader in leaders}
        self._owner: dict[int, int] = {}
        self._alive: set[int] = set()
        # Kernels without CONFIG_SCHED_INFO have none.
        self._has_delays = Path(proc, "self", "schedstat").exists()
        self._updates = 0
        self.update()

    def update(self) -> None:
        """Find new and ended processes. Read processor time, memory and I/O of those that belong to a tree."""
        try:
            alive = {int(name) for name in os.listdir(self._proc) if name.isdigit()}  # noqa: PTH208 - pathlib takes ten times as long
        except OSError:
            return
        stats = {}
        # In order of their numbers: a parent mostly comes before its children, which are found through it.
        for pid in sorted(alive - self._alive):
            fields = self._stat(pid)
            if fields is None:
                continue
            stats[pid] = fields
            parent, session = int(fields[1]), int(fields[3])
            owner = pid if pid in self.trees else self._owner.get(parent, session if session in self.trees else None)
            if owner is not None:
                self._owner[pid] = owner
                self.trees[owner].members[pid] = TreeProcess(start=int(fields[19]), parent=parent)
        self._alive = alive
        for tree in self.trees.values():
            # Children first: what is left of them goes to parents that have ended too.
            for pid, member in reversed(list(tree.members.items())):
                fields = stats.get(pid) or (self._stat(pid) if pid in alive else None)
                # Another start time: the number has been given to another process.
                if fields is None or int(fields[19]) != member.start or fields[0] in (b"Z", b"X"):
                    self._forget(tree, pid, member)
                else:
                    self._measure(pid, member, fields)
        self._updates += 1

    def measure_delays(self) -> None:
        """Read how long threads have waited for a processor, unless there are many and it is not their turn."""
        threads = sum(member.threads for tree in self.trees.values() for member in tree.members.values())
        if not self._has_delays or self._updates % (1 + threads // THREADS_AT_ONCE):
            return
        for tree in self.trees.values():
            for pid, member in tree.members.items():
                self._measure_delays(pid, member)
            tree.delay_ns = sum(part.delay_ns for part in tree.parts)

    def cpu_s(self) -> dict[int, float]:
        """Return the processor seconds of each tree so far, by its leader."""
        return {leader: tree.cpu_s for leader, tree in self.trees.items()}

    def is_ours(self, pid: int) -> bool | None:
        """Return whether a process belongs to a step. None when that cannot be seen here (in another container, say)."""
        if pid in self._owner:
            return True
        if pid not in self._alive and not Path(self._proc, str(pid)).exists():
            return None
        environment = read_kernel_file(f"{self._proc}/{pid}/environ").split(b"\0")
        if self._has_detached and environment == [b""]:
            return None
        return self._run_entry in environment and not self._step_entries.isdisjoint(environment)

    def data(self, leader: int, now_s: float) -> dict[str, object] | None:
        """Return the `process` record of a tree: `load` in processors busy since the last call, MiB of memory, bytes of I/O."""
        tree = self.trees[leader]
        if not tree.members:
            return None
        members, cpu_s = tree.members.values(), tree.cpu_s
        rss = sum(member.rss for member in members)
        tree.peak_rss = max(tree.peak_rss, rss)
        before, tree.last = tree.last, (now_s, cpu_s)
        data: dict[str, object] = {
            "pid": leader,
            "processes": len(tree.members),
            "threads": sum(member.threads for member in members),
            "cpu_s": round(cpu_s, 3),
            "rss_MiB": round(rss / MIB, 1),
            "read_bytes": sum(part.io[0] for part in tree.parts),
            "write_bytes": sum(part.io[1] for part in tree.parts),
        }
        if before is not None and now_s > before[0]:
            data["load"] = round(max(0.0, cpu_s - before[1]) / (now_s - before[0]), 4)
        if tree.pss is not None:
            data["pss_MiB"], tree.pss = round(tree.pss / MIB, 1), None
        if tree.delay_ns is not None:
            data["run_delay_s"], tree.delay_ns = round(tree.delay_ns / 1e9, 3), None
        return data

    def measure_pss(self) -> None:
        """Measure each tree's memory with shared pages counted once. Call it seldom, the kernel walks the page tables."""
        for tree in self.trees.values():
            paths = (f"{self._proc}/{pid}/smaps_rollup" for pid in tree.members)
            sizes = [size for path in paths if (size := kernel_bytes(path, b"Pss")) is not None]
            if sizes:
                tree.pss = sum(sizes)

    def _forget(self, tree: ProcessTree, pid: int, member: TreeProcess) -> None:
        del tree.members[pid]
        self._owner.pop(pid, None)
        # The kernel adds its time to that of a parent that waits for it, sooner or later: not to be counted twice.
        tree.members.get(member.parent, tree.ended).vanished_s += member.total_cpu_s
        tree.ended.ended_delay_ns += member.delay_ns
        tree.ended.io = (tree.ended.io[0] + member.io[0], tree.ended.io[1] + member.io[1])

    def _measure(self, pid: int, member: TreeProcess, fields: list[bytes]) -> None:
        member.parent = int(fields[1])
        member.cpu_s = (int(fields[11]) + int(fields[12])) / TICKS
        member.reaped_s = (int(fields[13]) + int(fields[14])) / TICKS
        member.threads = int(fields[17])
        member.rss = int(fields[21]) * PAGE
        text = read_kernel_file(f"{self._proc}/{pid}/io")
        counters = dict(line.split(b": ") for line in text.splitlines() if b": " in line)
        if b"read_bytes" in counters:  # not of another user's process
            member.io = (int(counters[b"read_bytes"]), int(counters[b"write_bytes"]))

    def _measure_delays(self, pid: int, member: TreeProcess) -> None:
        tasks, delays = f"{self._proc}/{pid}/task", {}
        try:
            threads = os.listdir(tasks)  # noqa: PTH208 - as above
        except OSError:
            return
        for thread in threads:
            # Nanoseconds at work, nanoseconds waiting for a processor, turns.
            fields = read_kernel_file(f"{tasks}/{thread}/schedstat").split()
            if len(fields) > 1:
                delays[thread] = int(fields[1])
        member.ended_delay_ns += sum(ns for thread, ns in member.delays.items() if thread not in delays)
        member.delays = delays

    def _stat(self, pid: int) -> list[bytes] | None:
        fields = process_stat(pid, self._proc)
        return fields if len(fields) > 21 else None
