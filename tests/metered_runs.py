"""A run of three launches whose device's power was read, and the CSV of a meter at the wall behind it, on a clock of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from milabench.events.model import Event
from milabench.events.rundir import Run
from tests.recorded_run import Recorded, data, record

BEGIN = 1_773_489_600.0  # 2026-03-14T12:00:00Z
LAUNCHES: Sequence[tuple[float, float]] = ((0.0, 90.0), (120.0, 215.0), (260.0, 352.0))  # seconds from BEGIN
IDLE_W, BUSY_W, RATE = 90.0, 400.0, 50.0
WALL_FACTOR, WALL_BASE_W = 1.1, 200.0  # of the power supply, and what the rest of the node draws


def metered_run(base: Path, name: str = "metered", *, has_power: bool = True, scale: float = 1.0) -> Run:
    """Three launches of one benchmark that counts tokens."""
    steps = [
        Recorded(
            bench="llama",
            tag="D0",
            repeat=repeat,
            events=tuple(_events(start, stop, scale * (1 + 0.004 * repeat), has_power)),
        )
        for repeat, (start, stop) in enumerate(LAUNCHES)
    ]
    return record(base, *steps, name=name)


def _events(start: float, stop: float, faster: float, has_power: bool) -> Iterator[Event]:
    time, items = BEGIN + start, RATE * faster
    for second in range(int(stop - start)):
        times = {"t0_ns": int((time + second) * 1e9), "host_ns": 10**9, "time": time + second + 1}
        yield data(task="train", rate=items, units="tokens/s", elapsed=1.0, n=items, **times)
        if has_power:
            yield data(task="main", gpudata={"0": {"power_W": device_power(start + second)}}, time=time + second)
    window = {"start": BEGIN + start, "stop": BEGIN + stop, "start_ns": int((BEGIN + start) * 1e9), "why": "stop"}
    yield data(task="train", window={**window, "stop_ns": int((BEGIN + stop) * 1e9)})
    yield data(metric="energy", value=BUSY_W * (stop - start), units="J", direction="none")


def device_power(seconds: float) -> float:
    """The power of the device so many seconds after BEGIN: it warms up, works, and idles between launches."""
    for start, stop in LAUNCHES:
        if start <= seconds < stop:
            return IDLE_W if seconds - start < 10 else BUSY_W
    return IDLE_W


def wall_readings(seed: int = 1, every_s: float = 1.0) -> list[tuple[float, float]]:
    """(true unix seconds, W) of the whole node from a minute before the run to a minute after it."""
    noise = random.Random(seed)
    count = int((LAUNCHES[-1][1] + 120) / every_s)
    times = [-60 + index * every_s for index in range(count)]
    return [(BEGIN + t, WALL_BASE_W + WALL_FACTOR * device_power(t) + noise.gauss(0, 4)) for t in times]


def wall_csv(offset_s: float = 0.0, seed: int = 1) -> str:
    """The meter's file; its clock is behind the run's by `offset_s`."""
    rows = [f"{time - offset_s:.3f},{watts:.2f}" for time, watts in wall_readings(seed)]
    return "\n".join(["time,power (W)", *rows]) + "\n"
