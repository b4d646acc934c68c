"""The node's processors: how busy they are, and the energy that their own counters tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmate.monitors.process_tree import read_kernel_file


class Cpu:
    """`load` of all processors, 0 to 1, since the last look; `energy_J` of the packages (RAPL) where it may be read."""

    def __init__(self, proc: str = "/proc", powercap: str = "/sys/class/powercap") -> None:
        self._proc = proc
        self._busy, self._total = self._times()
        self._packages = [
            RaplCounter(path) for path in sorted(Path(powercap).glob("intel-rapl:*")) if path.name.count(":") == 1
        ]
        self.absent = ""
        if any(package.last_uj is None for package in self._packages):
            self._packages = []
            self.absent = "no energy of the processor: its RAPL counters may not be read"

    def data(self) -> dict[str, Any]:
        """The processors' part of `cpudata`."""
        busy, total = self._times()
        data: dict[str, Any] = {}
        if total > self._total:
            data["load"] = round((busy - self._busy) / (total - self._total), 4)
        self._busy, self._total = busy, total
        if self._packages:
            data["energy_J"] = round(sum(package.joules() for package in self._packages), 3)
        return data

    def _times(self) -> tuple[int, int]:
        fields = read_kernel_file(f"{self._proc}/stat").partition(b"\n")[0].split()[1:9]
        ticks = [int(field) for field in fields]
        return sum(ticks) - sum(ticks[3:5]), sum(ticks)  # idle, and waiting for I/O


class RaplCounter:
    """One RAPL counter: microjoules that wrap around."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._range_uj = _whole(f"{path}/max_energy_range_uj")
        self.last_uj = _whole(f"{path}/energy_uj")
        self._sum_uj = 0

    def joules(self) -> float:
        """Joules since this was made."""
        now = _whole(f"{self._path}/energy_uj")
        if now is not None and self.last_uj is not None:
            step = now - self.last_uj
            self._sum_uj += step if step >= 0 else step + (self._range_uj or 0)
            self.last_uj = now
        return self._sum_uj / 1e6


def _whole(path: str) -> int | None:
    text = read_kernel_file(path).strip()
    return int(text) if text.isdigit() else None
