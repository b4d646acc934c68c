"""Clocks: the host's, and the accelerator's where the program's framework has it.

The host's is time.perf_counter_ns, the clock of every `t0_ns`: on Linux it equals time.monotonic and CLOCK_MONOTONIC.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from time import perf_counter_ns
from typing import Any, Protocol

from benchmate.frameworks import initialized_devices, jax_is_started, used_devices
from benchmate.kernel_files import process_stat
from benchmate.ring import NO_DEVICE_CLOCK

EVENTS_KEPT = 1024
"""Device events that may be in use at once."""
SMALL_BYTES = 1 << 20
"""An array of JAX's that may be kept, or copied, as the mark of a step."""
MOST_MARKS = 16
"""Arrays of a result that mark its step: some may be donated to the next."""


def process_start_ns() -> int | None:
    """Return when this process began, on the monotonic clock, to 10 ms. None where /proc does not have it."""
    try:
        ticks = int(process_stat("self")[19])
        since_boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    except (OSError, IndexError, AttributeError):
        return None
    return since_boot_ns - asleep_ns


class DeviceEvent(Protocol):
    """The common interface of torch.cuda.Event (CUDA and ROCm), torch.xpu.Event and torch.hpu.Event."""

    def record(self, stream: object = None, /) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end: DeviceEvent, /) -> float: ...


class DeviceClock:
    """Events on the current stream of an accelerator: recorded in the loop, read later, from a pool that is reused.

    `current_stream` returns that stream, `is_capturing` whether the work queued to it goes into a graph instead of the device.
    """

    def __init__(
        self,
        event_type: Callable[..., DeviceEvent],
        current_stream: Callable[[], object] = lambda: None,
        is_capturing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._event_type, self._current_stream, self._is_capturing = event_type, current_stream, is_capturing
        self._free: list[DeviceEvent] = []
        self._created = 0

    def mark(self) -> DeviceEvent | None:
        """Return an event recorded now on the current stream. None when too many are on their way, or the stream is captured."""
        # An event in a graph has no time: to read it is an error.
        if self._is_capturing():
            return None
        if self._free:
            event = self._free.pop()
        elif self._created < EVENTS_KEPT:
            self._created += 1
            # Without timing, elapsed_time() of two events raises.
            event = self._event_type(enable_timing=True)
        else:
            return None
        event.record(self._current_stream())
        return event

    def is_complete(self, event: DeviceEvent) -> bool:
        """Return whether the device has passed the event. Does not wait."""
        return event.query()

    def elapsed_ns(self, begin: DeviceEvent, end: DeviceEvent) -> int:
        """Return the nanoseconds on the device between two complete events. NO_DEVICE_CLOCK where they have none in common."""
        try:
            return max(0, round(begin.elapsed_time(end) * 1e6))
        except (RuntimeError, ValueError):  # on another stream, where the begin is still to come
            return NO_DEVICE_CLOCK

    def release(self, event: DeviceEvent) -> None:
        """Give an event back to be recorded again."""
        self._free.append(event)

    def wait(self, event: DeviceEvent) -> None:
        """Wait until the device has passed the event."""
        event.synchronize()


def keep_for_ever(thing: object) -> None:
    """Keep an object until the process is gone, beyond the end of the interpreter, which destroys modules' objects."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def device_clock() -> DeviceClock | None:
    """Return the clock of the accelerator that this process already uses. None on the host.

    A program that runs on the CPU of a machine with accelerators is timed on the host.
    """
    module = next(initialized_devices("cuda", "xpu", "hpu"), None)
    event_type = getattr(module, "Event", None)
    if module is None or event_type is None:
        return None
    # A program may work on another device than the current one, which is then idle.
    current, *others = used_devices(module)
    is_idle = len(others) == 1 and not module.memory_reserved(current)
    is_capturing = getattr(module, "is_current_stream_capturing", lambda: False)
    return DeviceClock(event_type, partial(module.current_stream, others[0] if is_idle else current), is_capturing)


def wait_for_devices() -> None:
    """Wait until the accelerators that torch uses are idle, and until JAX has computed every array."""
    for module in initialized_devices("cuda", "xpu", "hpu"):
        # Should the device have failed, the program's own next call says so.
        with contextlib.suppress(RuntimeError):
            for device in used_devices(module):
                module.synchronize(device)
    for array in _live_arrays():
        if not array.is_deleted():
            array.block_until_ready()


def _live_arrays() -> list[Any]:
    """Return the arrays of JAX in this process, newest first."""
    return list(sys.modules["jax"].live_arrays()) if jax_is_started() else []


def bounded_lag() -> BoundedLag | None:
    """Return the BoundedLag that keeps JAX close to the host's clock. None where the script does not use JAX."""
    return BoundedLag() if _live_arrays() else None


class BoundedLag:
    """Keeps JAX's dispatch at most `depth` entries ahead of the device, so that intervals on the host are steps on the device.

    Without it the host's clock sees how long a step takes to queue, a few microseconds, and once in a while the wait for all.
    """

    def __init__(self) -> None:
        self._marks: deque[list[Any]] = deque()
        self._are_donated = False
        """Whether a result was gone when it was to be waited for: from then on a copy represents the step."""
        self.cost_ns = 0
        """The cost of making the marks, without the waits, in which the device is busy."""

    def add(self, result: object = None, depth: int = 2) -> None:
        """Mark the work just queued, which gives `result`. Wait for the mark that is `depth` before it."""
        # With a depth of one step the device would be idle while the host queues the next; each further one delays the end of
        # the window.
        begin_ns = perf_counter_ns()
        arrays = [] if self._are_donated else _smallest_arrays(result)
        if not arrays and (array := _newest_pending()) is not None:
            arrays = [array.copy() if self._are_donated and array.nbytes <= SMALL_BYTES else array]
        self._marks.append(arrays)
        self.cost_ns += perf_counter_ns() - begin_ns
        while len(self._marks) > depth:
            self._wait(self._marks.popleft())

    def _wait(self, marked: list[Any]) -> None:
        arrays = [array for array in marked if not array.is_deleted()]
        if marked and not arrays:
            # Donated to a later step: wait for the result of that one, though that leaves the device idle.
            self._are_donated = True
            arrays = [array for array in [_newest_pending()] if array is not None]
        for array in arrays:
            array.block_until_ready()


def _smallest_arrays(result: object) -> list[Any]:
    """Return the smallest arrays of a step's result, SMALL_BYTES together: all may be the whole state of a training."""
    leaves = sys.modules["jax"].tree_util.tree_leaves(result)
    known = (leaf for leaf in leaves if hasattr(leaf, "block_until_ready"))
    arrays = heapq.nsmallest(MOST_MARKS, known, key=lambda array: array.nbytes)
    sizes = accumulate(array.nbytes for array in arrays)
    return [array for array, size in zip(arrays, sizes, strict=True) if size <= SMALL_BYTES] or arrays[:1]


def _newest_pending(candidates: int = 16) -> Any:
    """Return an array that the device has still to compute: the newest small array, since keeping it keeps its memory.

    None where the device has caught up. An array that the device already has, such as a batch, is no result of the last step.
    """
    newest = [array for array in _live_arrays()[:candidates] if not array.is_deleted() and not array.is_ready()]
    return next((array for array in newest if array.nbytes <= SMALL_BYTES), newest[0] if newest else None)
