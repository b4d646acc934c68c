"""What the commands that a user types often cost: CPU seconds, as multiples of a bare interpreter, median of several runs.

    python tests/perf/startup.py [BASE]

With BASE, a base in which config/quickstart.yaml is installed and prepared, also `install` and `prepare` with nothing to do.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = 11


def cost(*argv: str) -> tuple[float, float]:
    """Median CPU and wall seconds of a command."""
    cpu, wall = [], []
    for _ in range(RUNS):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        wall.append(time.perf_counter() - began)
    return statistics.median(cpu), statistics.median(wall)


def main() -> None:
    """Print a row for each command."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    milabench = (sys.executable, "-m", "milabench")
    bare, _ = cost(sys.executable, "-c", "pass")
    rows = {
        "milabench --help": (*milabench, "--help"),
        "milabench --version": (*milabench, "--version"),
        "milabench list": (*milabench, "list", "--config", "config/quickstart.yaml"),
    }
    if len(sys.argv) > 1:
        suite = ("--config", "config/quickstart.yaml", "--base", sys.argv[1])
        rows["install, nothing to do"] = (*milabench, "install", *suite)
        rows["prepare, nothing to do"] = (*milabench, "prepare", *suite)
    print(f"bare interpreter: {bare * 1e3:.0f} ms of CPU; medians of {RUNS}")
    for name, argv in rows.items():
        cpu, wall = cost(*argv)
        print(f"{name:24} {cpu * 1e3:6.0f} ms of CPU, {cpu / bare:5.1f} x bare, {wall * 1e3:6.0f} ms")


if __name__ == "__main__":
    main()
