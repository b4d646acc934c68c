"""What isolating registered cases costs: the start of a case in a fork of a warm interpreter with torch, and in a fresh one.

    python tests/perf/cases.py

A case that does nothing is started and ended, torch imported, in this Python or in the one that PYTHON_WITH_TORCH names. Run by
hand, the program prints first the ratio of a 10 ms spin timed in a process of its own to the same timed in this one, alternately,
median of pairs (the promise: 0.98 to 1.02), once with a spin of fixed time and once with one of fixed work; and what the system
itself takes to fork such an interpreter, to end the fork and to wait for it.
"""

from __future__ import annotations

import csv
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rows import ROOT, Row, command_cost, in_turn, in_yardsticks, python_with_torch, ratios, show, yardstick_ns

SOURCES = ROOT / "benchmate" / "src"
FORKED = "a case in a fork of a warm interpreter with torch"
FRESH = "a case in a fresh interpreter with torch"
IMPORT, BARE, YARDSTICK = "an interpreter that imports torch", "a bare fork", "yardstick"
FORKED_GOAL_S = 0.01
FRESH_GOAL = 1.1
UNMET = "a fork of such an interpreter that ends at once takes most of it: the system copies and frees its page tables"
PAIRS = 15
ROUNDS = 7
FORKS = 7
ITERATIONS = 20
SPIN_S = 0.01

SPINS = """
import sys
import benchmate.cases as benchmark

sys.path.insert(0, {folder!r})
import cases as perf

benchmark.register(name="time")(perf.spin)
benchmark.register(name="work")(lambda: perf.work({loops}))

if __name__ == "__main__":
    benchmark.main()
"""
EMPTY = """
import torch
import benchmate.cases as benchmark

@benchmark.register(name="{{n}}", n=list(range({count})))
def empty(n):
    pass

if __name__ == "__main__":
    benchmark.main()
"""
BARE_FORK = """
import os, statistics, time
import torch

def fork():
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return time.perf_counter() - began

print(statistics.median(fork() for _ in range(15)))
"""


def spin() -> None:
    """Take 10 ms."""
    end = time.perf_counter() + SPIN_S
    while time.perf_counter() < end:
        pass


def work(loops: int) -> None:
    """Do the same work each time."""
    for _ in range(loops):
        pass


def loops_of_a_spin() -> int:
    """How much work 10 ms are here, by the best of a few."""
    sample = 100_000
    took = []
    for _ in range(20):
        begin = time.perf_counter()
        work(sample)
        took.append(time.perf_counter() - begin)
    return round(sample * SPIN_S / min(took))


def results(python: str, program: Path, *argv: str) -> list[dict[str, str]]:
    """What a program of cases wrote as CSV."""
    command = [python, str(program), "-T", "csv", "-d", "0", *argv]
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return list(csv.DictReader(io.StringIO(done.stdout)))


def spin_ratios(folder: Path, name: str, loops: int) -> tuple[list[float], list[float]]:
    """Time in a process of its own over time in place, of neighbouring measurements: on the wall, and of the processor."""
    from benchmate.cases.lifecycle import measure_run
    from benchmate.cases.options import RunBudget

    program = folder / "spins.py"
    program.write_text(SPINS.format(folder=str(Path(__file__).parent), loops=loops))
    subject = spin if name == "time" else lambda: work(loops)
    wall, cpu = [], []
    for _ in range(PAIRS):
        in_place = measure_run(subject, RunBudget(iterations=ITERATIONS))
        (row,) = results(sys.executable, program, "-f", f"^{name}$", f"--benchmark_min_time={ITERATIONS}x")
        wall.append(int(row["wall_time"]) * ITERATIONS / in_place["wall_ns"])
        cpu.append(int(row["cpu_time"]) * ITERATIONS / in_place["cpu_ns"])
    return wall, cpu


def shown(found: list[float]) -> str:
    """Median and the middle half."""
    low, middle, high = statistics.quantiles(found, n=4)
    return f"{middle:.4f} ({low:.3f} to {high:.3f})"


def starts(folder: Path, python: str, isolation: str, count: int) -> float:
    """Median seconds from the start to the end of a process whose case does nothing, torch imported."""
    program = folder / "empty.py"
    program.write_text(EMPTY.format(count=count))
    found = results(python, program, "--isolation", isolation)
    return statistics.median(float(row["process_seconds"]) for row in found)


def import_s(python: str) -> float:
    """Wall seconds of a fresh interpreter that imports torch."""
    return command_cost((python, "-c", "import torch"))[1]


def bare_fork_s(python: str) -> float:
    """Median seconds of a fork that ends at once, of an interpreter that has imported torch."""
    done = subprocess.run([python, "-c", BARE_FORK], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def spins(folder: Path) -> None:
    """Print what a process of its own does to what is timed in it."""
    loops = loops_of_a_spin()
    for kind in ("time", "work"):
        wall, cpu = spin_ratios(folder, kind, loops)
        print(f"a 10 ms spin of fixed {kind}, isolated / in place: {shown(wall)}; processor time {shown(cpu)}")


def main() -> None:
    """Print the rows."""
    sys.path.insert(0, str(SOURCES))
    python = python_with_torch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "--json" not in sys.argv:
            spins(folder)
        if python is None:
            show([])
            return
        measures: dict[str, Callable[[], float]] = {
            FORKED: partial(starts, folder, python, "fork", FORKS),
            FRESH: partial(starts, folder, python, "spawn", 1),
            IMPORT: partial(import_s, python),
            BARE: partial(bare_fork_s, python),
            YARDSTICK: yardstick_ns,
        }
        found = in_turn(measures, ROUNDS)
    ms = {what: statistics.median(values) * 1e3 for what, values in found.items()}
    in_events = tuple(each * 1e9 / event for each, event in zip(found[FORKED], found[YARDSTICK], strict=True))
    seen = f"{ms[FORKED]:.1f} ms, {ms[FORKED] / ms[FRESH]:.2%} of a fresh one (promised: 10 %); a bare fork {ms[BARE]:.1f} ms"
    show(
        [
            Row(
                FORKED,
                "a bare event and append",
                in_events,
                in_yardsticks(FORKED_GOAL_S),
                seen,
                unmet=UNMET,
            ),
            Row(FRESH, IMPORT, ratios(found, FRESH, IMPORT), FRESH_GOAL, f"{ms[FRESH]:.0f} and {ms[IMPORT]:.0f} ms"),
        ]
    )


if __name__ == "__main__":
    main()
