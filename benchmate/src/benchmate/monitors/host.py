"""The node: load and energy of its processors, its memory, disks and networks, and the memory peak of a step's control group."""

from __future__ import annotations

import os
from pathlib import Path

from benchmate.kernel_files import control_group, read_kernel_file

SECTOR = 512  # in /proc/diskstats, whatever the sectors of the disk are
LAYERS = ("loop", "ram", "dm-", "md", "zram", "sr")
"""Block devices that are no disk, or are above a disk."""
INFINIBAND_WORD = 4
"""InfiniBand counts in units of four bytes."""
# The columns of /proc/net/dev that are recorded.
COLUMNS = {
    "bytes_recv": 0,
    "packets_recv": 1,
    "errin": 2,
    "dropin": 3,
    "bytes_sent": 8,
    "packets_sent": 9,
    "errout": 10,
    "dropout": 11,
}


class CpuSampler:
    """`load` of all processors, 0 to 1, since the last sample. `energy_J` of the packages (RAPL) where it may be read."""

    def __init__(self, powercap: str = "/sys/class/powercap") -> None:
        self._busy, self._total = self._times()
        # intel-rapl:0 is a package, intel-rapl:0:1 a part of it.
        packages = [path for path in sorted(Path(powercap).glob("intel-rapl:*")) if path.name.count(":") == 1]
        self._counters = [RaplCounter(path) for path in packages]
        self.absent = ""
        # Since CVE-2020-8694 (power as a side channel) kernels let only root read them.
        if any(counter.last_uj is None for counter in self._counters):
            self._counters = []
            self.absent = "no energy of the processor: its RAPL counters may not be read"

    def data(self) -> dict[str, object]:
        """Return the processors' part of `cpudata`."""
        busy, total = self._times()
        data: dict[str, object] = {}
        if total > self._total:
            data["load"] = round((busy - self._busy) / (total - self._total), 4)
        self._busy, self._total = busy, total
        if self._counters:
            data["energy_J"] = round(sum(counter.joules() for counter in self._counters), 3)
        return data

    def _times(self) -> tuple[int, int]:
        fields = read_kernel_file("/proc/stat").partition(b"\n")[0].split()[1:9]
        ticks = [int(field) for field in fields]
        idle = sum(ticks[3:5])  # idle, and waiting for I/O
        return sum(ticks) - idle, sum(ticks)


class RaplCounter:
    """A RAPL counter: microjoules that wrap around."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._range_uj = _read_int(f"{path}/max_energy_range_uj")
        self.last_uj = _read_int(f"{path}/energy_uj")
        self._sum_uj = 0

    def joules(self) -> float:
        """Return the joules since the first reading."""
        now = _read_int(f"{self._path}/energy_uj")
        if now is not None and self.last_uj is not None:
            step = now - self.last_uj
            self._sum_uj += step if step >= 0 else step + (self._range_uj or 0)
            self.last_uj = now
        return self._sum_uj / 1e6


def _read_int(path: str) -> int | None:
    text = read_kernel_file(path).strip()
    return int(text) if text.isdigit() else None


def memory_mib() -> list[float] | None:
    """Return `[used, total]` MiB of the node. `used` is the part not available to a new program. None where /proc has none."""
    # The first three: total, free, and available, which counts caches that would make room.
    lines = (line.partition(b":") for line in read_kernel_file("/proc/meminfo").splitlines()[:3])
    kib = {name: int(rest.split()[0]) for name, _, rest in lines}
    total, available = kib.get(b"MemTotal"), kib.get(b"MemAvailable")
    if total is None or available is None:
        return None
    return [round((total - available) / 1024, 1), round(total / 1024, 1)]


def group_peak_bytes(pid: int, proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int | None:
    """Return the peak memory of the step's control group. None when it has no group of its own, but shares one with others."""
    group, ours = control_group(f"{proc}/{pid}/cgroup"), control_group(f"{proc}/self/cgroup")
    if not group or group == ours:
        return None
    # Linux 5.19 and later.
    return _read_int(f"{groups}{group}/memory.peak")


class Disks:
    """Sums over whole disks since the first reading. Partitions and layers above them would count twice."""

    def __init__(self, proc: str = "/proc", block: str = "/sys/block") -> None:
        self._path = f"{proc}/diskstats"
        names = (path.name for path in Path(block).glob("*"))
        self._names = {os.fsencode(name) for name in names if not name.startswith(LAYERS)}
        self._start = self._sums()

    def data(self) -> dict[str, int] | None:
        """Return `iodata`: counts and bytes. None on a machine without a disk."""
        if not self._names:
            return None
        now = self._sums()
        keys = ("read_count", "read_bytes", "write_count", "write_bytes")
        return {key: after - before for key, after, before in zip(keys, now, self._start, strict=True)}

    def _sums(self) -> list[int]:
        sums = [0, 0, 0, 0]
        for line in read_kernel_file(self._path).splitlines():
            fields = line.split()
            if len(fields) > 9 and fields[2] in self._names:
                for index, (field, size) in enumerate(((3, 1), (5, SECTOR), (7, 1), (9, SECTOR))):
                    sums[index] += int(fields[field]) * size
        return sums


class Network:
    """Sums over all interfaces but loopback, and InfiniBand ports, since the first reading."""

    def __init__(self, proc: str = "/proc", infiniband: str = "/sys/class/infiniband") -> None:
        self._path = f"{proc}/net/dev"
        self._ports = sorted(Path(infiniband).glob("*/ports/*/counters"))
        self._start = self._sums()

    def data(self) -> dict[str, int]:
        """Return `netdata`: bytes, packets, errors and drops. `rdma_*` bytes where there are such ports."""
        return {key: value - self._start.get(key, 0) for key, value in self._sums().items()}

    def _sums(self) -> dict[str, int]:
        sums = dict.fromkeys(COLUMNS, 0)
        for line in read_kernel_file(self._path).splitlines()[2:]:
            interface, _, rest = line.partition(b":")
            fields = rest.split()
            if interface.strip() != b"lo" and len(fields) > 11:
                for name, column in COLUMNS.items():
                    sums[name] += int(fields[column])
        for port in self._ports:
            for name, file in (("rdma_recv_bytes", "port_rcv_data"), ("rdma_sent_bytes", "port_xmit_data")):
                words = _read_int(f"{port}/{file}")
                if words is not None:
                    sums[name] = sums.get(name, 0) + words * INFINIBAND_WORD
        return sums
