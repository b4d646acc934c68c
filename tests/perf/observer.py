"""What observing a loop costs: prints nanoseconds, ratios, start-up and memory. Run with a Python that has benchmate (and torch).

Thread CPU time, medians of interleaved blocks: the machine may be busy. Numbers to look at, not assertions.
"""

from __future__ import annotations

import importlib.util
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import benchmate
from benchmate.config import parse_config
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


def training_step() -> None:
    """The same training steps of about 1 ms: alone, twice (for the noise), with the loop observed, with the loss observed too."""
    if importlib.util.find_spec("torch") is None:
        print("training step: torch is not installed here")
        return
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = [(torch.randn(96, 256), torch.randint(0, 10, (96,))) for _ in range(25)]

    def train(loader: Iterable[tuple[torch.Tensor, torch.Tensor]], observe_loss: bool) -> None:
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if observe_loss:
                benchmate.observe_loss(loss)

    fresh_observer()
    observed = benchmate.observed(batches)
    kinds = {
        "alone": (batches, False),
        "alone, again": (batches, False),
        "loop observed": (observed, False),
        "loop and loss observed": (observed, True),
    }
    for loader, loss in kinds.values():
        train(loader, loss)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    order = list(kinds)
    shuffle = random.Random(0).shuffle
    for _ in range(300):  # short blocks, so that what else the machine does hits all kinds alike
        shuffle(order)
        for name in order:
            loader, loss = kinds[name]
            times[name].append(cpu_ns(partial(train, loader, loss), len(batches)))
    print(
        "training step, CPU time (median of 300 shuffled blocks of 25 steps; difference paired by block, against both runs alone)"
    )
    for name, values in times.items():
        alone = [(a + b) / 2 for a, b in zip(times["alone"], times["alone, again"], strict=True)]
        more = statistics.median(b - a for a, b in zip(alone, values, strict=True))
        share = more / statistics.median(alone)
        print(f"  {name:32} {statistics.median(values) / 1e3:8.1f} us   {more / 1e3:+6.2f} us   {share:+.2%}")


def start_up() -> None:
    """CPU time of a program that does nothing, under Python, voir's command and our runner."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.write_text("pass\n")
        voirfile = Path(folder) / "voirfile.py"
        voirfile.write_text("def instrument_main(ov):\n    yield ov.phases.load_script\n")
        ours = [sys.executable, "-m", "benchmate.run"]
        lines = {
            "python": [sys.executable, str(script)],
            "python, import benchmate": [sys.executable, "-c", "import benchmate"],
            "voir's own command": [sys.executable, "-m", "voir", str(script)],
            "benchmate.run": [*ours, str(script)],
            "benchmate.run with a voirfile": [*ours, "--voirfile", str(voirfile), str(script)],
        }
        times: dict[str, list[float]] = {name: [] for name in lines}
        for _ in range(10):
            for name, command in lines.items():
                times[name].append(child_cpu_ms(command))
    base = min(times["python"])
    print("start-up, CPU ms (median, min, min over plain python; 10 interleaved)")
    for name, values in times.items():
        print(f"  {name:32} {statistics.median(values):6.0f} {min(values):6.0f} {min(values) - base:+6.0f}")


def child_cpu_ms(command: list[str]) -> float:
    """CPU milliseconds of a child, its output thrown away."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "VOIRFILE": ""}
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


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
        start_up()
        training_step()
    finally:
        shutil.rmtree(Null.ring_folder)
