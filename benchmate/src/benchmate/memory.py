"""Peaks of memory: the process's high-water mark, and what torch's allocator allocated and reserved."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol


class DeviceMemory(Protocol):
    """The members of torch.cuda and torch.xpu that are used here."""

    def is_initialized(self) -> bool: ...
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


def allocator_peaks() -> dict[str, int] | None:
    """Return the peak bytes that torch allocated and reserved on its devices since the last reset; None without a device."""
    module = _torch_device_module()
    if module is None:
        return None
    devices = range(module.device_count())
    return {
        "allocated": sum(module.max_memory_allocated(device) for device in devices),
        "reserved": sum(module.max_memory_reserved(device) for device in devices),
    }


def reset_allocator_peaks() -> None:
    """Reset the peaks, so that what set-up took is not counted as the run's."""
    module = _torch_device_module()
    if module is not None:
        for device in range(module.device_count()):
            module.reset_peak_memory_stats(device)


def _torch_device_module() -> DeviceMemory | None:
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        module: DeviceMemory | None = getattr(torch, name, None)
        if module is not None and hasattr(module, "is_initialized") and module.is_initialized():
            return module
    return None
