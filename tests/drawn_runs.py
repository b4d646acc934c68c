"""Two runs with everything that a page can draw: devices with sensors, one of them throttled, launches, a failure, odd names."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from milabench.events.model import Event
from milabench.events.rundir import Run
from tests.recorded_run import SYSTEM, Recorded, data, record

HOSTILE = "<script>alert(1)<script>\"'&"
NAMES = ("bert", "llama-sft", "resnet50", "whisper", HOSTILE)
STEPS = 60
HOT = range(30, 45)


def system(base: Path, name: str, faster: float, *, repeats: int = 3) -> Run:
    """A run of five benchmarks on two devices; the one called `new` fails in whisper and is throttled in resnet50."""
    steps = []
    noise = random.Random(7)
    for place, bench in enumerate(NAMES):
        for repeat in range(repeats):
            for device in (0, 1):
                is_new = name == "new"
                if bench == "whisper" and is_new:
                    detail = "79 of 80 GiB, <b>not</b> enough"
                    failed = Recorded(
                        bench=bench, repeat=repeat, outcome="failed", why="out-of-memory", detail=detail, events=()
                    )
                    steps += [failed] if device == 0 else []
                    continue
                level = 100 * 3**place * (faster if bench != "bert" else 1.0) * (1 + 0.002 * repeat + 0.004 * device)
                is_hot = is_new and bench == "resnet50" and device == 1
                steps.append(
                    Recorded(
                        bench=bench,
                        tag=f"D{device}",
                        devices=(device,),
                        repeat=repeat,
                        events=tuple(course(level, device, noise, is_hot=is_hot)),
                        reasons=("throttled",) if is_hot else (),
                    )
                )
    machine = {**SYSTEM, "nodes": [{**SYSTEM["nodes"][0], "kernel": "6.8.0" if name == "new" else "6.1.0"}]}
    suite = {bench: {"env": {"NCCL_ALGO": "Ring" if name == "old" else "Tree"}} for bench in NAMES}
    skipped = [{"bench": "opt-6_7b", "why": "needs 8 devices, the system has 2"}]
    return record(base, *steps, name=name, manifest={"system": machine, "suite": suite}, skipped=skipped)


def course(level: float, device: int, noise: random.Random, *, is_hot: bool = False) -> Iterator[Event]:
    """Observations of about a tenth of a second, a sample of the device beside every other one, and the window."""
    time, begin = 1e9, 1e9
    for step in range(STEPS):
        is_slow = is_hot and step in HOT
        items = 0.1 * level
        elapsed = 0.1 / ((1 - 0.5 * math.exp(-step / 3)) * (1 + noise.gauss(0, 0.004)) * (0.8 if is_slow else 1))
        times: dict[str, Any] = {"t0_ns": int(time * 1e9), "host_ns": int(elapsed * 1e9), "time": time + elapsed}
        warmup = {"warmup": True} if step < 12 else {}
        yield data(task="train", rate=items / elapsed, units="items/s", elapsed=elapsed, n=items, **times, **warmup)
        if step % 2 == 0:
            sample = {
                "memory": [min(62000, 2000 + step * 3000), 81559],
                "load": min(0.98, 0.2 + step / 20),
                "power_W": (420 if is_slow else 660) + noise.gauss(0, 12),
                "sm_clock_MHz": 1200 if is_slow else 1755,
                "temperature": 40 + step // 2,
                "throttle": ["hw_thermal"] if is_slow else ["sw_power_cap"],
            }
            yield data(task="main", gpudata={str(device): sample}, time=time)
        time += elapsed
        if step == 11:
            begin = time
    window = {"start": begin, "stop": time, "start_ns": int(begin * 1e9), "stop_ns": int(time * 1e9), "why": "stop"}
    yield data(task="train", window=window)
    yield data(metric="memory_reserved_peak", value=62000 * 2**20, units="B")
