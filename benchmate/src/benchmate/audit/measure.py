"""One cell, measured in this process: every call by the host's clock and, where there is one, by the device's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from time import perf_counter_ns

from benchmate.audit.cells import Cell
from benchmate.ops.sampling import gc_paused
from benchmate.ops.types import Call, Event

MIN_CALLS = 30
MIN_CALLS_OF_SLOW = 6  # the least that an exact interval of the median needs
PATIENCE = 10
NO_EVENTS = "no accelerator here: a CPU has done its work when the call returns"


@dataclass(kw_only=True)
class CellTimes:
    """What one process found; times in integer nanoseconds.

    `wall_ns` from before a call to after it, with the wait for the device where the cell waits after each; `enqueue_ns`
    the part of it before that wait; `event_ns` between the device events around the call, empty without a device.
    `warmup_ns` the calls before, `window_ns` from the first measured call to the device's end after the last.
    `unfinished` counts the calls whose end event had not been reached when the host could have read it: what a script
    that reads at once trips over.
    """

    device: str
    warmup_ns: list[int] = field(default_factory=list)
    wall_ns: list[int] = field(default_factory=list)
    enqueue_ns: list[int] = field(default_factory=list)
    event_ns: list[int] = field(default_factory=list)
    window_ns: int = 0
    unfinished: int = 0
    absent: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the times as plain data, for the audit's process."""
        return asdict(self)


def measure_cell(call: Call, cell: Cell, *, device: str, calls: int, seconds: float) -> CellTimes:
    """Time `calls` calls, or fewer when they take longer than `seconds` together: 30 at least, of very slow ones 6."""
    result = CellTimes(device=device)
    wait, make_event = _device_tools(device, result)
    wait()
    for _ in range(cell.warmup):
        start = perf_counter_ns()
        call()
        if cell.sync == "each":
            wait()
        result.warmup_ns.append(perf_counter_ns() - start)
    wait()
    with gc_paused():
        _time_calls(call, cell, result, wait, make_event, min(calls, 10**6), seconds)
    return result


def _time_calls(
    call: Call,
    cell: Cell,
    result: CellTimes,
    wait: Callable[[], None],
    make_event: Callable[[], Event] | None,
    calls: int,
    seconds: float,
) -> None:
    waits = cell.sync == "each"
    # Events are made before the loop: making one costs the host more than recording it.
    pairs = [(make_event(), make_event()) for _ in range(calls)] if make_event else []
    begin = perf_counter_ns()
    enough, far_enough = begin + round(seconds * 1e9), begin + round(PATIENCE * seconds * 1e9)
    for number in range(calls):
        if pairs:
            before, after = pairs[number]
            start = perf_counter_ns()
            before.record()
            call()
            after.record()
            enqueued = perf_counter_ns()
            if not after.query():
                result.unfinished += 1
        else:
            start = perf_counter_ns()
            call()
            enqueued = perf_counter_ns()
        if waits:
            # What asking the event cost is not the call's.
            resumed = perf_counter_ns()
            wait()
            stop = enqueued + perf_counter_ns() - resumed
        else:
            stop = enqueued
        result.enqueue_ns.append(enqueued - start)
        result.wall_ns.append(stop - start)
        if stop > enough and number + 1 >= (MIN_CALLS if stop < far_enough else MIN_CALLS_OF_SLOW):
            break
    wait()
    result.window_ns = perf_counter_ns() - begin
    for before, after in pairs[: len(result.wall_ns)]:
        result.event_ns.append(round(before.elapsed_time(after) * 1e6))


def _device_tools(device: str, result: CellTimes) -> tuple[Callable[[], None], Callable[[], Event] | None]:
    """Return how to wait for the device and how to make an event; None, and the reason in the result, without events."""
    if device == "cpu":
        result.absent = NO_EVENTS
        return (lambda: None), None
    import torch

    kind = getattr(torch, device)
    return kind.synchronize, lambda: kind.Event(enable_timing=True)
