"""The device that operators run on: waiting for it, timing with its events, emptying its caches, its memory's peak."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from benchmate import memory
from benchmate.kernel_files import kernel_bytes
from benchmate.machine_context import host_caches
from benchmate.ops.base import Event, OpsError

UNKNOWN_CACHE = 64 * 2**20  # bytes, where the device does not say
LARGEST_CACHE = 512 * 2**20
MEASURED = "param_bench:measure"  # the ncu filter of old scripts names this range
SPIN_HZ = 2_000_000_000  # about the clock that torch.cuda._sleep counts by; too long only costs time


class HostEvent:
    """An event of a device that has none of its own: the host's clock, once the device has done its work."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self._ns = 0

    def record(self) -> None:
        """Note the time. `wait` comes first."""
        self._wait()
        self._ns = time.perf_counter_ns()

    def synchronize(self) -> None:
        """Do nothing: the time is noted already."""

    def elapsed_time(self, end: HostEvent) -> float:
        """Return the milliseconds from this event to another."""
        return (end._ns - self._ns) / 1e6


class TorchDevice:
    """A torch device. Events where it has them (CUDA, ROCm, XPU), the host's clock where not."""

    def __init__(self, name: str) -> None:
        import torch

        try:
            self.device = torch.device(name)
        except RuntimeError as error:
            raise OpsError(f"-d {name}: {str(error).splitlines()[0]}") from None
        self.kind, self.name, index = self.device.type, name, self.device.index
        self._module: ModuleType | None = None  # torch.cuda and its like
        if self.kind == "cpu":
            return
        if self.kind == "meta":
            raise OpsError("-d meta: a device on which nothing is computed cannot be timed")
        module = getattr(torch, self.kind, None)
        if module is None or not module.is_available():
            raise OpsError(f"-d {name}: torch {torch.__version__} finds no such device here. Use cpu")
        if index is not None and index >= module.device_count():
            raise OpsError(f"-d {name}: there are {module.device_count()} devices, from {self.kind}:0")
        self._module = module
        # Under torchrun `-d cuda` is a device of its own for each rank.
        chosen = index if index is not None else os.environ.get("LOCAL_RANK")
        if chosen is not None and hasattr(module, "set_device"):
            module.set_device(int(chosen))

    @property
    def has_events(self) -> bool:
        """Whether durations are read from events on the device."""
        return self.kind in ("cuda", "xpu")

    @property
    def is_cuda(self) -> bool:
        return self.kind == "cuda"

    def synchronize(self) -> None:
        """Wait until the device has done all its work. Nothing on a CPU."""
        if self._module is not None:
            self._module.synchronize()

    def event(self) -> Event:
        """Return a new event. `record()` puts it on the current stream, without `has_events` on the host's clock."""
        if self._module is None or not self.has_events:
            return HostEvent(self.synchronize)
        return self._module.Event(enable_timing=True)

    def event_pairs(self, count: int) -> list[tuple[Event, Event]]:
        """Return events for the begin and the end of `count` calls. Making an event costs the host more than recording it."""
        return [(self.event(), self.event()) for _ in range(count)]

    def spin(self, seconds: float) -> None:
        """Keep the device busy, so that the calls which follow are queued before they start. Nothing where it cannot."""
        import torch

        if self.is_cuda:
            torch.cuda._sleep(int(seconds * SPIN_HZ))

    @functools.cached_property
    def cache_bytes(self) -> int:
        """The last cache level before memory: the L2 of a GPU, the largest cache of a CPU."""
        if self.is_cuda:
            import torch

            return int(getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0)) or UNKNOWN_CACHE
        caches = host_caches() if self.kind == "cpu" else []
        return max((cache["size"] for cache in caches), default=UNKNOWN_CACHE)

    @functools.cached_property
    def evict(self) -> Callable[[], object]:
        """A function that throws everything out of the cache, by writing twice its size on the device itself."""
        import torch

        # Twice its size: caches do not strictly replace what was used longest ago.
        size = min(2 * self.cache_bytes, 2 * LARGEST_CACHE)
        buffer = torch.empty(size // 8, dtype=torch.int64, device=self.device)
        return functools.partial(buffer.fill_, 1)

    def reset_peak(self) -> None:
        """Reset the memory peak."""
        if self.is_cuda:
            import torch

            torch.cuda.reset_peak_memory_stats(self.device)
        elif self.kind == "cpu":
            memory.reset_host_peak()  # where that is not allowed the peak is the process's

    def peak_bytes(self) -> int | None:
        """Return the peak since `reset_peak`: of torch's allocator on a GPU, of resident memory on a CPU; None where unknown."""
        if self.is_cuda:
            import torch

            return int(torch.cuda.max_memory_allocated(self.device))
        return memory.host_peak_bytes() if self.kind == "cpu" else None

    @contextlib.contextmanager
    def profiler_range(self, name: str, run_id: str, tag: str, direction: str) -> Iterator[None]:
        """`[param|<run id>|<tag>|<direction>]` for torch's profiler and, on CUDA, for NSight, inside `[param|<tag>]`.

        The labels are the original's, so that the trace of an outside profiler can be joined to the records.
        """
        import torch

        label = f"[param|{run_id if run_id.startswith(name) else f'{name}|{run_id}'}|{tag}|{direction}]"
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.profiler.record_function(label))
            for text in (f"[param|{tag}]", label, *([MEASURED] if tag == "measure" else [])) if self.is_cuda else ():
                # Ranges of start and end: ncu names these as they are, those of push and pop with a slash behind the name.
                stack.callback(torch.cuda.nvtx.range_end, torch.cuda.nvtx.range_start(text))
            yield


@functools.cache
def torch_device(name: str) -> TorchDevice:
    """Return the single object for a device in this process, so that its caches are measured once.

    Raises OpsError for no device.
    """
    return TorchDevice(name)


def default_device() -> str:
    """Return cuda (ROCm answers to it too), xpu or cpu, as torch sees them. Without torch it is cpu."""
    try:
        import torch
    except ImportError:
        return "cpu"
    for name in ("cuda", "xpu"):
        module = getattr(torch, name, None)
        if module is not None and module.is_available():
            return name
    return "cpu"


def free_bytes(device: str) -> int | None:
    """Return the bytes that could still be allocated on a device. None where that cannot be told."""
    import torch

    kind = torch.device(device).type
    if kind == "cuda":
        # What torch's allocator keeps for later is free too.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + kept)
    if kind != "cpu":
        return None
    available = kernel_bytes("/proc/meminfo", b"MemAvailable")
    return None if available is None else min(available, _control_group_limit())


def _control_group_limit() -> int:
    """Return the bytes that this process's control group leaves, where it limits memory."""
    folder = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
    return 1 << 62


def clock_pair_s(readings: int = 200) -> float:
    """Return the seconds between two readings of the host's clock with nothing between them: the resolution of a timing."""
    clock = time.perf_counter_ns
    gaps = []
    for _ in range(readings):
        begin = clock()
        gaps.append(clock() - begin)
    return sorted(gaps)[readings // 2] / 1e9
