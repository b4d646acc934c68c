"""What observing a loop costs: prints nanoseconds, ratios and memory. Run with a Python that has benchmate.

Thread CPU time, medians of interleaved blocks: the machine may be busy. Numbers to look at, not assertions.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import benchmate
from benchmate.configuration import parse_config
from benchmate.memory import host_peak_bytes
from benchmate.session import Session, use

BLOCKS = 31
STEPS = 20_000


class Null:
    """A sink that throws everything away, so that only the loop is timed."""

    # A folder: the rings are the agent's to read, as in a run; here nobody does.
    ring_folder = Path(tempfile.mkdtemp(prefix="observer-"))
    dropped = records = bytes = 0

    def record(self, event: str, data: object) -> None: ...
    def control(self, line: object) -> None: ...
    def answer(self, timeout_s: float) -> None: ...
    def forked(self) -> None: ...
    def close(self) -> None: ...


class Event:
    """The least that a timer can do for a step: an object, its time, an append."""

    __slots__ = ("t",)

    def record(self) -> None:
        self.t = time.perf_counter_ns()


def cpu_ns(function: Callable[[], None], steps: int) -> float:
    """Thread CPU nanoseconds of a step."""
    start = time.thread_time_ns()
    function()
    return (time.thread_time_ns() - start) / steps


def fresh_observer() -> Callable[[Iterable[object]], Iterable[object]]:
    """An observer of its own past its warm-up, that never ends the loop."""
    rules = {"warmup_steps": 1, "warmup_s": 0, "window_steps": 10**9, "window_s": 10**6}
    session = Session(parse_config({"measure": rules}), Null())
    use(session)
    for _ in benchmate.observed(range(2), batch_size=1):
        pass
    return lambda iterable: benchmate.observed(iterable, batch_size=1)


def empty_loop() -> None:
    """An observed empty loop against a bare one and against the least timer."""

    def bare() -> None:
        for _ in range(STEPS):
            pass

    def least() -> None:
        events = []
        for _ in range(STEPS):
            event = Event()
            event.record()
            events.append((event, 1))

    names = ("bare loop", "bare event and append", "observed, one entry a step", "observed, steps summed")
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(BLOCKS):
        times[names[0]].append(cpu_ns(bare, STEPS))
        times[names[1]].append(cpu_ns(least, STEPS))
        observe = fresh_observer()
        loop = observe(range(STEPS))
        times[names[2]].append(cpu_ns(partial(go_through, loop), STEPS))
        go_through(observe(range(10 * STEPS)))  # fill the ring: from here several steps share an entry
        times[names[3]].append(cpu_ns(partial(go_through, loop), STEPS))
    base = statistics.median(times[names[0]])
    print(f"empty loop, CPU ns a step (median of {BLOCKS} blocks of {STEPS})")
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"  {name:32} {middle:8.0f}   x{middle / base:.1f}   min {min(values):.0f}")


def go_through(iterable: Iterable[object]) -> None:
    for _ in iterable:
        pass


def long_loop() -> None:
    """Peak memory of a process before and after 10 million observed steps that nobody reads."""
    steps = 10_000_000
    observe = fresh_observer()
    go_through(observe(range(100_000)))
    before = host_peak_bytes() or 0
    each = cpu_ns(lambda: go_through(observe(range(steps))), steps)
    after = host_peak_bytes() or 0
    print(f"{steps:,} steps: peak memory {before / 2**20:.1f} -> {after / 2**20:.1f} MiB, {each:.0f} ns a step")


if __name__ == "__main__":
    try:
        long_loop()
        empty_loop()
    finally:
        shutil.rmtree(Null.ring_folder)
