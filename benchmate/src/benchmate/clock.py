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
    for array in _live_arrays():
        if not array.is_deleted():
            array.block_until_ready()


def _live_arrays() -> list[Any]:
    """The arrays of JAX in this process, newest first; asks only a JAX that the script uses, because asking starts it."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_started = getattr(bridge, "backends_are_initialized", None)
    if is_started is None or not is_started():
        return []
    return sys.modules["jax"].live_arrays()  # type: ignore[attr-defined,no-any-return]


def bounded_lag() -> BoundedLag | None:
    """What keeps JAX close to the host's clock, where the script uses JAX."""
    return BoundedLag() if _live_arrays() else None


class BoundedLag:
    """Keeps JAX's dispatch at most `depth` steps ahead of the device, so that intervals on the host are steps on the device.

    Without it the host's clock sees a step being asked for, a few microseconds, and once in a while the wait for all of them.
    """

    def __init__(self, depth: int = 2) -> None:
        self._depth = depth
        self._results: deque[Any] = deque()

    def add(self, result: Any = None) -> None:
        """A step has been asked for, and will give `result`; wait for the one `depth` steps before it."""
        self._results.append(_newest() if result is None else result)
        if len(self._results) > self._depth:
            self._wait(self._results.popleft())

    @staticmethod
    def _wait(result: Any) -> None:
        leaves = sys.modules["jax"].tree_util.tree_leaves(result)  # type: ignore[attr-defined]
        kept = [leaf for leaf in leaves if hasattr(leaf, "block_until_ready") and not leaf.is_deleted()]
        if leaves and not kept:
            # Donated to a later step: what that one made will do, though it is one or two steps early.
            kept = [array for array in [_newest()] if array is not None]
        for array in kept:
            array.block_until_ready()


def _newest(looked_at: int = 16, small: int = 1 << 16) -> Any:
    """An array that the last step made: the newest small one, since what is kept here keeps its memory; None without any."""
    newest = [array for array in _live_arrays()[:looked_at] if not array.is_deleted()]
    return next((array for array in newest if array.nbytes <= small), newest[0] if newest else None)
