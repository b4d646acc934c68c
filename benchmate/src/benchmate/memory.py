"""Peaks of memory: the process's high-water mark, and what torch's allocator allocated and reserved."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import ModuleType

from benchmate.frameworks import initialized_devices


def host_peak_bytes() -> int | None:
    """Return the process's peak resident memory (VmHWM); not ru_maxrss, which a child inherits from its parent at fork."""
    with contextlib.suppress(OSError, ValueError):
        # Bytes: the name of the process, in the first line, may be in any encoding.
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def device_memory() -> ModuleType | None:
    """Return torch's device module in use whose allocator keeps peaks; None without one."""
    return next(initialized_devices("cuda", "xpu"), None)


def allocator_peaks() -> dict[str, int]:
    """Return the peak bytes that torch allocated and reserved on its devices since the last reset; empty without a device."""
    module = device_memory()
    if module is None:
        return {}
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
