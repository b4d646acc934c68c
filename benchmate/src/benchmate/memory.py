"""Peaks of memory: the process's high-water mark, and what torch's allocator allocated and reserved."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, cast

from benchmate.torch_state import initialized_device


class DeviceMemory(Protocol):
    """The members of torch.cuda and torch.xpu that are used here."""

    def device_count(self) -> int: ...
    def memory_allocated(self, device: int, /) -> int: ...
    def max_memory_allocated(self, device: int, /) -> int: ...
    def max_memory_reserved(self, device: int, /) -> int: ...
    def reset_peak_memory_stats(self, device: int, /) -> None: ...


def host_peak_bytes() -> int | None:
    """Return the process's peak resident memory (VmHWM); not ru_maxrss, which a child inherits from its parent at fork."""
    try:
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def device_memory() -> DeviceMemory | None:
    """Return torch's device module in use whose allocator keeps peaks; None without one."""
    return cast("DeviceMemory | None", initialized_device(("cuda", "xpu")))


def allocator_peaks() -> dict[str, int] | None:
    """Return the peak bytes that torch allocated and reserved on its devices since the last reset; None without a device."""
    module = device_memory()
    if module is None:
        return None
    devices = range(module.device_count())
    return {
        "allocated": sum(module.max_memory_allocated(device) for device in devices),
        "reserved": sum(module.max_memory_reserved(device) for device in devices),
    }


def reset_allocator_peaks() -> None:
    """Reset the peaks, so that what set-up took is not counted as the run's."""
    module = device_memory()
    if module is not None:
        for device in range(module.device_count()):
            module.reset_peak_memory_stats(device)
