"""Memory: peaks of the process and of torch's allocator, and which errors say that there was too little."""

from __future__ import annotations

import contextlib
import errno
import re
from pathlib import Path
from types import ModuleType

from benchmate.frameworks import initialized_devices, known_devices
from benchmate.kernel_files import kernel_bytes
from benchmate.records import text_of

# torch's allocators of devices and of the host, JAX, Python and numpy, C++, cuBLAS, NCCL.
OUT_OF_MEMORY = re.compile(
    r"out ?of ?memory|can't allocate memory|RESOURCE_EXHAUSTED|MemoryError|bad_alloc|STATUS_ALLOC_FAILED|Failed to CUDA calloc",
    re.IGNORECASE,
)

_RESET_HIGH_WATER = "5"  # proc(5), /proc/pid/clear_refs


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, the host's or a device's, could not be had."""
    # torch raises a plain RuntimeError on a CPU; numpy's and torch's own types are found by their names.
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return (
        isinstance(error, MemoryError) or OUT_OF_MEMORY.search(f"{type(error).__name__}: {text_of(error)}") is not None
    )


def host_peak_bytes() -> int | None:
    """Return the process's peak resident memory (VmHWM). Not ru_maxrss, which a child inherits from its parent at fork."""
    return kernel_bytes("/proc/self/status", b"VmHWM")


def reset_host_peak() -> bool:
    """Reset the peak to the memory that is resident now. Return whether that is allowed."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_HIGH_WATER)
    except OSError:
        return False
    return True


def device_memory() -> ModuleType | None:
    """Return torch's device module in use whose allocator keeps peaks. None without such a module."""
    return next(initialized_devices("cuda", "xpu"), None)


def allocator_peaks() -> dict[str, int]:
    """Return the peak bytes that torch allocated and reserved on its devices since the last reset.

    Empty without a device, where the device has failed, and where the program brought an allocator that keeps no peaks.
    """
    module = device_memory()
    if module is None:
        return {}
    with contextlib.suppress(RuntimeError):
        devices = known_devices(module)
        return {
            "allocated": sum(module.max_memory_allocated(device) for device in devices),
            "reserved": sum(module.max_memory_reserved(device) for device in devices),
        }
    return {}


def reset_allocator_peaks() -> None:
    """Reset the peaks, so that the memory of set-up is not counted as the run's."""
    module = device_memory()
    if module is not None:
        with contextlib.suppress(RuntimeError):
            for device in known_devices(module):
                module.reset_peak_memory_stats(device)
