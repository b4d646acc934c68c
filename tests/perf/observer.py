"""What observing a loop costs: prints ratios and start-up. Run with a Python that has benchmate (and torch).

Thread CPU time, medians of interleaved blocks: the machine may be busy. Numbers to look at, not assertions.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import benchmate
import benchmate.loss_recorder
from benchmate.configuration import parse_config
from benchmate.session import Session, use

ROUNDS = 400
STEPS_IN_TURN = 10


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


def fresh_observer() -> Callable[[Iterable[object]], Iterable[object]]:
    """An observer of its own past its warm-up, that never ends the loop."""
    rules = {"warmup_steps": 1, "warmup_s": 0, "window_steps": 10**9, "window_s": 10**6}
    session = Session(parse_config({"measure": rules}), Null())
    use(session)
    for _ in benchmate.observed(range(2), batch_size=1):
        pass
    return lambda iterable: benchmate.observed(iterable, batch_size=1)


@dataclass(frozen=True)
class Kind:
    """One way of going through the same training steps."""

    batches: Iterator[Any]
    observe_loss: Callable[[Any], None] | None = None


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
    now = time.thread_time_ns
    began = spent = 0

    def own_time() -> int:
        """CPU time of the steps whose loss is observed: so many losses are read as if those were the only ones."""
        return spent + now() - began

    def train(kind: Kind) -> tuple[float, float]:
        """(all, the instruments' calls with the clock's) CPU ns a step of one block."""
        nonlocal began, spent
        inside = 0
        began = now()
        for _ in range(STEPS_IN_TURN):
            t0 = now()
            x, y = next(kind.batches)
            t1 = now()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            t2 = now()
            if kind.observe_loss is not None:
                kind.observe_loss(loss)
            inside += t1 - t0 + now() - t2
        took = now() - began
        if kind.observe_loss is not None:
            spent += took
        return took / STEPS_IN_TURN, inside / STEPS_IN_TURN

    def alone() -> Iterator[Any]:
        return itertools.cycle(batches)

    def observed() -> Iterator[Any]:
        return iter(benchmate.observed(alone()))

    fresh_observer()
    vars(benchmate.loss_recorder)["perf_counter_ns"] = own_time
    kinds = {
        "alone": Kind(alone()),
        "alone, again": Kind(alone()),
        "loop observed": Kind(observed()),
        "loop and loss observed": Kind(observed(), benchmate.observe_loss),
    }
    order = list(kinds)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    shuffle = random.Random(0).shuffle
    for round_ in range(-20, ROUNDS):  # the first ones warm up
        shuffle(order)
        for name in order:
            found = train(kinds[name])
            if round_ >= 0:
                times[name].append(found)
    print(
        f"training step, CPU time (medians of {ROUNDS} shuffled rounds of {STEPS_IN_TURN} steps; load average "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors)"
    )
    print(
        "  paired: against the same step alone in the same round, 95 % interval; in the loop: inside the instruments' calls"
    )
    whole = statistics.median(step for step, _ in times["alone"])
    print(f"  {'':24} {'step':>9}   {'paired':>25}   in the loop")
    for name, values in times.items():
        pairs = list(zip(times["alone"], values, strict=True))
        ratio, low, high = median_interval([b[0] / a[0] - 1 for a, b in pairs])
        inside = statistics.median(b[1] - a[1] for a, b in pairs)
        print(
            f"  {name:24} {statistics.median(step for step, _ in values) / 1e3:6.0f} us   "
            f"{ratio:+7.2%} [{low:+.2%}, {high:+.2%}]   {inside / 1e3:+5.2f} us   {inside / whole:+.2%}"
        )


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """(median, low, high): the exact 95 % interval of the median by order statistics, ranks from the normal approximation."""
    ordered = sorted(values)
    n = len(ordered)
    rank = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    return statistics.median(ordered), ordered[rank], ordered[n - 1 - rank]


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


if __name__ == "__main__":
    try:
        start_up()
        training_step()
    finally:
        shutil.rmtree(Null.ring_folder)
