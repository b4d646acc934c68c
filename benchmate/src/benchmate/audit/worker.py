"""The process of a cell: reads its task from its argument and sends the result over its private pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from benchmate.audit.models import find_model
from benchmate.ops.base import Call, Event
from benchmate.ops.device import default_device
from benchmate.ops.sampling import gc_paused
from benchmate.result_channel import ResultChannel, die_with_supervisor

MIN_CALLS = 30
MIN_CALLS_OF_SLOW = 6  # the least that an exact interval of the median needs
PATIENCE = 10
NO_EVENTS = "no accelerator here: a CPU has done its work when the call returns"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A way to time a call: `batch` items in a call, `warmup` calls before, and when the host waits for the device.

    `sync` is `each` (after every call), `end` (once, after the last) or `none` (never before the clock is read). `again`
    marks the cell that is measured twice in every block, so that a difference between equals is known.
    """

    batch: int
    warmup: int
    sync: str
    again: bool = False

    @property
    def name(self) -> str:
        """The cell as a person reads it."""
        return f"batch={self.batch} warmup={self.warmup} sync={self.sync}" + (" again" if self.again else "")


def main(argv: list[str]) -> int:
    """Measure. Send the result, or a line with the error, to descriptor `argv[1]`."""
    die_with_supervisor()
    channel = ResultChannel(int(argv[1]))
    try:
        answer = _measure(**json.loads(argv[0]))
    except Exception as error:  # whatever a model may raise is this cell's result
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    channel.send(answer)
    return 1 if "error" in answer else 0


def _measure(
    cell: dict[str, Any], model: str, folder: str, device: str, threads: int, calls: int, seconds: float
) -> dict[str, object]:
    """Return the measurement of a cell of a model on a device. `calls` and `seconds` are its limits."""
    if threads:
        import torch

        torch.set_num_threads(threads)
    if device == "auto":
        device = default_device()
    wanted = Cell(**cell)
    begin = perf_counter_ns()
    call = find_model(model, Path(folder))(wanted.batch, device)
    made_ns = perf_counter_ns() - begin
    # A graph in ONNX runs on streams of its own, where torch's events see nothing.
    clock = "cpu" if model.startswith("onnx:") else device
    times = measure_cell(call, wanted, device=clock, calls=calls, seconds=seconds)
    times.device = device
    return {**asdict(times), "made_ns": made_ns}


@dataclass(kw_only=True)
class CellTimes:
    """The findings of a process. Times in integer nanoseconds.

    `wall_ns` from before a call to after it, with the wait for the device where the cell waits after each. `enqueue_ns`
    the part before that wait. `event_ns` between the device events around the call, empty without a device.
    `warmup_ns` the calls before, `window_ns` from the first measured call to the device's end after the last.
    `unfinished` counts the calls whose end event had not been reached when the host could have read it. A
    script that reads at once fails on them.
    """

    device: str
    warmup_ns: list[int] = field(default_factory=list)
    wall_ns: list[int] = field(default_factory=list)
    enqueue_ns: list[int] = field(default_factory=list)
    event_ns: list[int] = field(default_factory=list)
    window_ns: int = 0
    unfinished: int = 0
    absent: str = ""


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
    wait()  # warm-up that is still queued would be measured with the first call
    # Events are made before the loop: making one costs the host more than recording it.
    pairs = [(make_event(), make_event()) for _ in range(min(calls, 10**6))] if make_event else []
    with gc_paused():
        begin = perf_counter_ns()
        enough, far_enough = begin + round(seconds * 1e9), begin + round(PATIENCE * seconds * 1e9)
        for number in range(min(calls, 10**6)):
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
            if cell.sync == "each":
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
    return result


def _device_tools(device: str, result: CellTimes) -> tuple[Callable[[], None], Callable[[], Event] | None]:
    """Return how to wait for the device and how to make an event. None, and the reason in the result, without events."""
    if device == "cpu":
        result.absent = NO_EVENTS
        return (lambda: None), None
    import torch

    kind = getattr(torch, device)
    return kind.synchronize, lambda: kind.Event(enable_timing=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
