"""Clocks: the host's, and the accelerator's where a framework that has one is in use."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Protocol

EVENTS_KEPT = 1024


def now_ns() -> int:
    """Monotonic nanoseconds, the clock of every `t0_ns`: on Linux perf_counter, monotonic and CLOCK_MONOTONIC are one."""
    return time.perf_counter_ns()


def process_start_ns() -> int | None:
    """When this process began, on the monotonic clock, to 10 ms; None where /proc does not say."""
    try:
        # The command in brackets may hold spaces and brackets; what follows the last one does not.
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        since_boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return since_boot_ns - asleep_ns


class DeviceClock(Protocol):
    """Events on an accelerator's queue: recorded in the loop, read later."""

    def mark(self) -> Any | None:
        """An event recorded now on the current stream; None when too many are still on their way."""

    def is_complete(self, event: Any) -> bool:
        """Whether the device has passed the event; does not wait."""

    def elapsed_ns(self, begin: Any, end: Any) -> int:
        """Nanoseconds on the device between two complete events."""

    def release(self, event: Any) -> None:
        """Give an event back to be recorded again."""

    def wait(self, event: Any) -> None:
        """Wait until the device has passed the event."""


class TorchClock:
    """torch.cuda.Event (CUDA and ROCm), torch.xpu.Event or torch.hpu.Event, from a pool that is reused."""

    def __init__(self, event_type: Any) -> None:
        self._event_type = event_type
        self._free: list[Any] = []
        self._made = 0

    def mark(self) -> Any | None:
        if self._free:
            event = self._free.pop()
        elif self._made < EVENTS_KEPT:
            self._made += 1
            event = self._event_type(enable_timing=True)
        else:
            return None
        event.record()
        return event

    def is_complete(self, event: Any) -> bool:
        return event.query()

    def elapsed_ns(self, begin: Any, end: Any) -> int:
        return max(0, round(begin.elapsed_time(end) * 1e6))

    def release(self, event: Any) -> None:
        self._free.append(event)

    def wait(self, event: Any) -> None:
        event.synchronize()


def device_clock() -> DeviceClock | None:
    """The clock of the accelerator that this process already uses; None on the host.

    Asks only a torch that the script has imported, and only a device that it has initialised: a program that runs
    on the CPU of a machine with accelerators is timed on the host.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for name in ("cuda", "xpu", "hpu"):
        device = getattr(torch, name, None)
        is_initialized = getattr(device, "is_initialized", None)
        event_type = getattr(device, "Event", None)
        if is_initialized is not None and event_type is not None and is_initialized():
            return TorchClock(event_type)
    return None


def wait_for_devices() -> None:
    """Wait until every device has done what was asked of it; for frameworks without events, at both ends of a window."""
    jax = sys.modules.get("jax")
    live_arrays = getattr(jax, "live_arrays", None)
    if live_arrays is not None:
        for array in live_arrays():
            if not array.is_deleted():
                array.block_until_ready()


class BoundedLag:
    """Keeps JAX's dispatch at most `depth` results ahead of the device, so that intervals on the host are steps on the device."""

    def __init__(self, depth: int = 2) -> None:
        self._depth = depth
        self._results: deque[Any] = deque()

    def add(self, result: Any) -> None:
        """Take the result of a step; wait for the one `depth` steps before it."""
        jax = sys.modules.get("jax")
        if jax is None:
            return
        self._results.append(result)
        if len(self._results) > self._depth:
            jax.block_until_ready(self._results.popleft())
