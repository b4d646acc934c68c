"""What is paid around a benchmark of one second (no torch, no probe), over a bare interpreter's start; in turn, medians.

    python tests/perf/one_second.py

By hand also the CPU time, and what Python takes to import the libraries that any run needs: less cannot be paid.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rows import Row, command_cost, in_turn, ratios, show

SUITE = """\
profile: quick
second: {install_group: second, shell: true, command: ["sleep 1"], plan: {method: njobs, n: 1}, max_duration: 60, weight: 1.0}
"""
SLEPT_S = 1.0
ROUNDS = 15
GOAL = 12.0
BARE, RUN, LIBRARIES = "bare interpreter", "run", "import asyncio, click, yaml"
UNMET = (
    "to import asyncio, click, PyYAML and what else a run needs of Python takes 7 x a bare interpreter in CPU time, and some 180"
    " modules of milabench that read, plan and write a run 10 x, half of it for their data classes, which the standard library"
    " compiles at every import, one after the other in one process: more than the goal before anything is done; the start of the"
    " agent, 6 x, is hidden behind them; what was tried and not kept is in docs/explanation/start-up.md"
)


def costs(folder: str) -> dict[str, Callable[[], tuple[float, float]]]:
    """What measures CPU and wall seconds of each; of a run without its benchmark's second."""
    suite = Path(folder, "suite.yaml")
    suite.write_text(SUITE)
    words = ("run", "--use-current-env", "--config", str(suite), "--base", folder, "--display", "none")

    def around() -> tuple[float, float]:
        cpu, wall = command_cost((sys.executable, "-m", "milabench", *words), MILABENCH_LOCK_DIR=folder)
        return cpu, wall - SLEPT_S

    return {
        BARE: partial(command_cost, (sys.executable, "-c", "pass")),
        RUN: around,
        LIBRARIES: partial(command_cost, (sys.executable, "-c", "import asyncio, click, yaml")),
    }


def main() -> None:
    """Print the row, and by hand the CPU time of each."""
    cpu: dict[str, list[float]] = {}

    def wall_of(name: str, cost: Callable[[], tuple[float, float]]) -> float:
        used, wall = cost()
        cpu.setdefault(name, []).append(used)
        return wall

    with tempfile.TemporaryDirectory() as folder:
        walls = in_turn({name: partial(wall_of, name, cost) for name, cost in costs(folder).items()}, ROUNDS)
    medians = {name: statistics.median(values) * 1e3 for name, values in walls.items()}
    if "--json" not in sys.argv:
        bare = statistics.median(cpu[BARE])
        for name, values in cpu.items():
            print(
                f"{name}: {statistics.median(values) * 1e3:.0f} ms of CPU, {statistics.median(values) / bare:.1f} x bare"
            )
        print(f"load average {os.getloadavg()[0]:.1f}")
    seen = f"{medians[RUN]:.0f} and {medians[BARE]:.0f} ms"
    show([Row("around a benchmark of one second, wall", BARE, ratios(walls, RUN, BARE), GOAL, seen, unmet=UNMET)])


if __name__ == "__main__":
    main()
