"""Peaks of memory: the process's own high-water mark, and what torch's allocator allocated and reserved."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def host_peak_bytes() -> int | None:
    """The process's peak resident memory (VmHWM); not ru_maxrss, which a child inherits from its parent at fork."""
    try:
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def allocator_peaks() -> dict[str, int] | None:
    """Peak bytes that torch allocated and reserved on all its devices since the last reset; None without such a device."""
    module = _torch_device_module()
    if module is None:
        return None
    devices = range(module.device_count())
    return {
        "allocated": sum(module.max_memory_allocated(device) for device in devices),
        "reserved": sum(module.max_memory_reserved(device) for device in devices),
    }


def reset_allocator_peaks() -> None:
    """Start the peaks anew, so that what set-up took is not counted as the run's."""
    module = _torch_device_module()
    if module is not None:
        for device in range(module.device_count()):
            module.reset_peak_memory_stats(device)


def _torch_device_module() -> Any:
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        module = getattr(torch, name, None)
        is_initialized = getattr(module, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            return module
    return None
