"""Memory of a case's process in its parts: its start, the peak of set-up, the peak of the run.

Figures are bytes. Unavailable figures are absent. Runs in the case's process, outside the timed part.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from benchmate import memory
from benchmate.frameworks import initialized_devices, jax_is_started
from benchmate.kernel_files import kernel_bytes

# A process that computes has one of these open: CUDA's, ROCm's, or a render node of Intel's and others.
_COMPUTE_FILES = ("/dev/nvidia-uvm", "/dev/kfd", "/dev/dri/render", "/dev/accel")


class MemoryPeaks:
    """The peaks of a case: call `begin`, `after_setup`, `after_run` in turn. `sizes` holds the known bytes by name."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.notes: list[str] = []
        self._allocated_before = 0

    def begin(self) -> None:
        """Note the memory allocated before the case: allocations during the program's import are not the case's."""
        # cuda_memory_usage is what the few-bit library reports: the peak above what was there before.
        self._allocated_before = allocated_bytes()
        self._keep("host_memory_start", kernel_bytes("/proc/self/status", b"VmRSS"))
        self._reset()

    def after_setup(self) -> None:
        """Keep the peaks of set-up and reset them, so that the peaks of the run are its own."""
        self._keep_peaks("setup")
        self._reset()

    def after_run(self) -> None:
        """Keep the peaks of the run, before teardown begins."""
        self._keep_peaks("run")
        peaks = [size for key, size in self.sizes.items() if key.startswith("memory_allocated_peak_")]
        if peaks:
            self.sizes["cuda_memory_usage"] = max(peaks) - self._allocated_before
        if device_files(_open_files()):
            self._keep("device_memory_process", _device_bytes_of_process(self.notes))

    def _keep(self, key: str, value: int | None) -> None:
        if value is not None:
            self.sizes[key] = value

    def _keep_peaks(self, part: str) -> None:
        self._keep(f"host_memory_peak_{part}", memory.host_peak_bytes())
        for kind, value in memory.allocator_peaks().items():
            self.sizes[f"memory_{kind}_peak_{part}"] = value

    def _reset(self) -> None:
        memory.reset_allocator_peaks()
        if not memory.reset_host_peak():
            self.notes.append("the host's high-water mark cannot be reset: its peaks include earlier work")


def device_files(paths: list[str]) -> list[str]:
    """Return the open files of a process by which it holds an accelerator."""
    return [path for path in paths if path.startswith(_COMPUTE_FILES)]


def holds_device() -> str:
    """Return the files by which this process holds an accelerator, empty when it holds none.

    Its forks could not use that device.
    """
    files = device_files(_open_files())
    if files:
        return f"{files[0]} is open"
    for device in initialized_devices("cuda", "xpu", "hpu"):
        return f"{device.__name__} is initialized"
    return "JAX has started its backends" if jax_is_started() else ""


def allocated_bytes() -> int:
    """Return the memory that torch's allocator holds now on all devices that this process uses. 0 where it uses none."""
    module = memory.device_memory()
    return 0 if module is None else sum(module.memory_allocated(device) for device in range(module.device_count()))


def _open_files() -> list[str]:
    paths = []
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the descriptor of this very listing
                paths.append(str(entry.readlink()))
    return paths


def _device_bytes_of_process(notes: list[str]) -> int | None:
    """Return the memory of this process on all devices by the driver's account. None, with a note, where it gives none."""
    from benchmate.devices.api import MIB, DeviceLostError
    from benchmate.devices.detect import open_vendor

    vendor, problem = open_vendor("auto", os.environ)
    held = []
    try:
        for device in vendor.devices:
            held += [p.memory_mib for p in device.survey().processes or () if p.pid == os.getpid()]
    except DeviceLostError as error:
        problem = str(error)
    finally:
        vendor.close()
    known = [mib for mib in held if mib is not None]
    if not known:
        notes.append(f"device memory of the process: {problem or 'the driver does not list it (a container?)'}")
        return None
    return round(sum(known) * MIB)
