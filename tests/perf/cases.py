"""What isolating registered cases costs: `python tests/perf/cases.py [PYTHON_WITH_TORCH]`.

Prints the ratio of a 10 ms spin timed in a process of its own to the same timed in this one, alternately, median of pairs (the
promise: 0.98 to 1.02), once with a spin of fixed time and once with one of fixed work; and what it takes to start a case in a
fork of a warm interpreter with torch, as a share of a fresh one (the promise: at most a tenth).
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "benchmate" / "src"
PAIRS = 15
STARTS = 7
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


def rows(python: str, program: Path, *argv: str) -> list[dict[str, str]]:
    """What a program of cases wrote as CSV."""
    command = [python, str(program), "-T", "csv", "-d", "0", *argv]
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return list(csv.DictReader(io.StringIO(done.stdout)))


def ratios(folder: Path, name: str, loops: int) -> tuple[list[float], list[float]]:
    """Time in a process of its own over time in place, of neighbouring measurements: on the wall, and of the processor."""
    from benchmate.cases.lifecycle import measure_run
    from benchmate.cases.options import RunBudget

    program = folder / "spins.py"
    program.write_text(SPINS.format(folder=str(Path(__file__).parent), loops=loops))
    subject = spin if name == "time" else lambda: work(loops)
    wall, cpu = [], []
    for _ in range(PAIRS):
        in_place = measure_run(subject, RunBudget(iterations=ITERATIONS))
        (row,) = rows(sys.executable, program, "-f", f"^{name}$", f"--benchmark_min_time={ITERATIONS}x")
        wall.append(int(row["wall_time"]) * ITERATIONS / in_place["wall_ns"])
        cpu.append(int(row["cpu_time"]) * ITERATIONS / in_place["cpu_ns"])
    return wall, cpu


def shown(found: list[float]) -> str:
    """Median and the middle half."""
    low, middle, high = statistics.quantiles(found, n=4)
    return f"{middle:.4f} ({low:.3f} to {high:.3f})"


def starts(folder: Path, python: str, isolation: str) -> float:
    """Median seconds from the start to the end of a process whose case does nothing, torch imported."""
    program = folder / "empty.py"
    program.write_text(EMPTY.format(count=STARTS))
    found = rows(python, program, "--isolation", isolation)
    return statistics.median(float(row["process_seconds"]) for row in found)


def main(python: str) -> None:
    """Print the ratios."""
    sys.path.insert(0, str(SOURCES))
    loops = loops_of_a_spin()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("time", "work"):
            wall, cpu = ratios(folder, kind, loops)
            print(f"a 10 ms spin of fixed {kind}, isolated / in place: {shown(wall)}; processor time {shown(cpu)}")
        has_torch = python != sys.executable or importlib.util.find_spec("torch") is not None
        if not has_torch:
            print("starts with torch: not measured, torch is not installed here; name a python that has it")
            return
        fresh, forked = starts(folder, python, "spawn"), starts(folder, python, "fork")
        print(
            f"a case that does nothing, torch imported: fresh {fresh * 1e3:.0f} ms, forked {forked * 1e3:.1f} ms,",
            end=" ",
        )
        print(f"{forked / fresh:.4f} of it")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.executable)
