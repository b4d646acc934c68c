"""What the programs of this folder share: rows with a goal, interleaved repetitions, and a yardstick for the machine.

Every cost is a ratio of two things that were measured in turn in one run, for on a shared machine nothing else holds. Where the
cost has no natural neighbour it is divided by the yardstick, the CPU time of one bare event and append in a fresh interpreter;
the goals in seconds of November 2026 were set on a machine where that is YARDSTICK_THERE_NS.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
YARDSTICK_THERE_NS = 410.0
"""580 ns in the process that observed a loop, with its garbage; of 281 ns here in that process 200 were left without."""
YARDSTICK_STEPS = 20_000
YARDSTICK_BLOCKS = 5


@dataclass(frozen=True)
class Row:
    """One cost of the harness: a ratio of each repetition, the goal that their median is to meet, and what was seen in units."""

    what: str
    over: str
    ratios: tuple[float, ...]
    goal: float
    seen: str
    more_is_better: bool = False
    percent: bool = False
    unmet: str = ""
    """Why the goal is beyond what is reasonable, with the limit that was measured; said where it is not met."""

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def is_met(self) -> bool:
        return self.median >= self.goal if self.more_is_better else self.median <= self.goal

    def shown(self, value: float) -> str:
        """A ratio as the table says it: `1.3 x`, `0.52 %`."""
        if self.percent:
            return f"{value * 100:.2f} %"
        return f"{value:.3g} x" if value < 1000 else f"{float(f'{value:.3g}'):,.0f} x"

    def cells(self) -> tuple[str, str, str, str, str]:
        """What, over what, the median with its 95 % interval, the goal, the verdict."""
        low, high = median_interval(self.ratios)
        verdict = "met" if self.is_met else "not met"
        goal = f"{'at least' if self.more_is_better else 'at most'} {self.shown(self.goal)}"
        median = f"{self.shown(self.median)} [{self.shown(low)}, {self.shown(high)}]"
        return self.what, self.over, median, goal, verdict


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics, ranks from the normal approximation; few values: all of them."""
    ordered = sorted(values)
    n = len(ordered)
    rank = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    return ordered[rank], ordered[n - 1 - rank]


def in_turn(measures: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Each measure's value in every round, in an order that is shuffled anew for each; the first rounds are thrown away."""
    order, draw = list(measures), random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in measures}
    for round_ in range(-warm_up, rounds):
        draw.shuffle(order)
        for name in order:
            value = measures[name]()
            if round_ >= 0:
                found[name].append(value)
    return found


def ratios(found: Mapping[str, Sequence[float]], what: str, over: str) -> tuple[float, ...]:
    """One measure over another, round by round."""
    return tuple(one / other for one, other in zip(found[what], found[over], strict=True))


class Event:
    """The least that a timer can do for a step: an object, its time, an append."""

    __slots__ = ("t",)

    def record(self) -> None:
        self.t = time.perf_counter_ns()


def yardstick_ns() -> float:
    """CPU nanoseconds of one bare event and append, now, on this machine, as a fresh interpreter takes them.

    What this process has made before is out of the collector's sight meanwhile, and its thresholds are Python's own; the median
    of some blocks.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(700, 10, 10)
    try:
        return statistics.median(bare_event_ns() for _ in range(YARDSTICK_BLOCKS))
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def bare_event_ns() -> float:
    """CPU nanoseconds of one bare event and append in this process, with what collecting garbage in it takes."""
    began = time.thread_time_ns()
    events = []
    for _ in range(YARDSTICK_STEPS):
        event = Event()
        event.record()
        events.append((event, 1))
    return (time.thread_time_ns() - began) / YARDSTICK_STEPS


def in_yardsticks(seconds: float) -> float:
    """A goal in seconds, as it was set, in events of the machine that it was set on."""
    return seconds * 1e9 / YARDSTICK_THERE_NS


def command_cost(argv: Sequence[str], **environ: str) -> tuple[float, float]:
    """CPU and wall seconds of a command and its children; what it prints is thrown away, its failure is one."""
    env = {**os.environ, **environ}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def python_with_torch() -> str | None:
    """A Python that has torch: this one, or what PYTHON_WITH_TORCH names; where there is none, that is said."""
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    named = os.environ.get("PYTHON_WITH_TORCH")
    if named is None:
        print(
            "not measured: torch is not installed here; PYTHON_WITH_TORCH names a Python that has it", file=sys.stderr
        )
    return named


def show(rows: Sequence[Row]) -> None:
    """Print rows as lines of a program that is run by hand, or as JSON where `python tests/perf` asks (`--json`)."""
    if "--json" in sys.argv:
        print(json.dumps([asdict(row) for row in rows]))
        return
    for row in rows:
        what, over, median, goal, verdict = row.cells()
        print(f"{what}, over {over}: {median}; {goal}: {verdict}   ({row.seen})")
