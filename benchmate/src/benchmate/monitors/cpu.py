"""The node's processors: their load, and the energy that their own counters report."""

from __future__ import annotations

from pathlib import Path

from benchmate.monitors.process_tree import read_kernel_file


class CpuSampler:
    """`load` of all processors, 0 to 1, since the last sample; `energy_J` of the packages (RAPL) where it may be read."""

    def __init__(self, proc: str = "/proc", powercap: str = "/sys/class/powercap") -> None:
        self._proc = proc
        self._busy, self._total = self._times()
        # intel-rapl:0 is a package, intel-rapl:0:1 a part of it.
        packages = [path for path in sorted(Path(powercap).glob("intel-rapl:*")) if path.name.count(":") == 1]
        self._counters = [RaplCounter(path) for path in packages]
        self.absent = ""
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
        fields = read_kernel_file(f"{self._proc}/stat").partition(b"\n")[0].split()[1:9]
        ticks = [int(field) for field in fields]
        idle = sum(ticks[3:5])  # idle, and waiting for I/O
        return sum(ticks) - idle, sum(ticks)


class RaplCounter:
    """One RAPL counter: microjoules that wrap around."""

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
