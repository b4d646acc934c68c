"""Memory of the node, and the peak of a step that has a control group of its own."""

from __future__ import annotations

from benchmate.monitors.process_tree import read_kernel_file


class NodeMemory:
    """`[used, total]` MiB of the node; used is what could not be given to a new program."""

    def __init__(self, proc: str = "/proc") -> None:
        self._path = f"{proc}/meminfo"

    def data(self) -> list[float] | None:
        """Return the memory part of `cpudata`; None where /proc does not have it."""
        kib = {}
        for line in read_kernel_file(self._path).splitlines()[:3]:
            name, _, rest = line.partition(b":")
            kib[name] = int(rest.split()[0])
        total, available = kib.get(b"MemTotal"), kib.get(b"MemAvailable")
        if total is None or available is None:
            return None
        return [round((total - available) / 1024, 1), round(total / 1024, 1)]


def group_peak_bytes(pid: int, proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int | None:
    """Return the peak memory of the step's control group; None when it has none of its own, but shares one with others."""
    group, ours = _cgroup_path(f"{proc}/{pid}/cgroup"), _cgroup_path(f"{proc}/self/cgroup")
    if not group or group == ours:
        return None
    text = read_kernel_file(f"{groups}{group}/memory.peak").strip()
    return int(text) if text.isdigit() else None


def _cgroup_path(path: str) -> str:
    """Return the path of a control group of version 2; empty without one."""
    for line in read_kernel_file(path).decode("utf-8", "replace").splitlines():
        if line.startswith("0::"):
            return line[3:]
    return ""
