"""What supervision costs: the CPU that agent and control plane take together beside 1000 observations a second.

    python tests/perf/agent_cost.py [SECONDS]

All that they take from the start of the agent to its end, in runs of ten seconds. By hand also what a silent command and one
that prints costs, how long a step that does nothing takes, and how fast records pass.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

from rows import ROOT, Row, command_cost, in_turn, in_yardsticks, ratios, show, yardstick_ns

sys.path.insert(0, str(ROOT))

from milabench.events.run_writer import create_run
from milabench.execute.agent_client import local_node
from milabench.execute.engine import ExecutionResult, execute
from milabench.plan.model import Plan, Step

PROGRAMS = ROOT / "tests" / "programs"
RATE = 1000
SECONDS = 10.0
ROUNDS = 4
BARE, BESIDE, SILENT = "bare event and append", "beside observations", "beside a silent command"
BARE_START, LEAST_START = "bare interpreter", "interpreter with the libraries of an agent"
LIBRARIES = "import ctypes, json, os, re, selectors, socket, subprocess; os._exit(0)"
"""What no supervisor in Python goes without: processes, sockets, messages, and prctl."""
GOAL_SHARE = 0.004
"""Of a core."""


def step(name: str, *argv: object, env: dict[str, str] | None = None) -> Step:
    words = tuple(str(word) for word in argv)
    env = {"MILABENCH_SINK": "@sink", **(env or {})}
    return Step(id=name, bench=name, phase="run", argv=words, env=env, needs_data=False)


async def carried_out(base: Path, *steps: Step) -> ExecutionResult:
    writer = create_run(base, "cost", datetime.now())
    async with local_node(f"cost-{time.monotonic_ns()}") as node:
        done = await execute(Plan(phase="run", steps=steps), {"local": node}, writer, lambda _: None)
    writer.close()
    return done


def cpu_s(*steps: Step) -> float:
    """CPU seconds of agent and control plane for a run of these steps."""
    with tempfile.TemporaryDirectory() as folder:
        overhead = asyncio.run(carried_out(Path(folder), *steps)).overhead
    return overhead.agent_cpu_s + overhead.control_cpu_s


def start_s(code: str) -> float:
    """CPU seconds of an interpreter that is started as the agent is, and runs this."""
    return command_cost([sys.executable, "-u", "-I", "-S", "-c", code])[0]


def show_others(seconds: float) -> None:
    """Print what has no goal."""
    talk = f"import time\nfor i in range({int(seconds * 100)}): print('epoch', i, flush=True); time.sleep(0.01)"
    print(f"beside 100 lines/s: {cpu_s(step('talk', sys.executable, '-S', '-c', talk)) / seconds:.3%} of a core")
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        start = time.monotonic()
        asyncio.run(carried_out(base, *(step(f"true{i}", "true") for i in range(20))))
        print(f"a step that does nothing: {(time.monotonic() - start) / 20 * 1e3:.1f} ms")
        start = time.monotonic()
        program = str(PROGRAMS / "sink.py")
        done = asyncio.run(carried_out(base, step("many", sys.executable, "-S", program, "children", 8, 25_000, 100)))
        took = time.monotonic() - start
        print(f"8 processes, {200_000 / took:,.0f} records/s through the sink, on disk ({done.overhead.to_json()})")


def main(seconds: float) -> None:
    """Print the row, by hand after what else there is to know."""
    is_by_hand = "--json" not in sys.argv
    if is_by_hand:
        show_others(seconds)
    measures: dict[str, Callable[[], float]] = {
        BARE: yardstick_ns,
        BESIDE: partial(cpu_s, step("steps", sys.executable, "-S", PROGRAMS / "steps.py", RATE, seconds)),
        SILENT: partial(cpu_s, step("sleep", "sleep", seconds if is_by_hand else 1)),
        BARE_START: partial(start_s, "pass"),
        LEAST_START: partial(start_s, LIBRARIES),
    }
    found = in_turn(measures, ROUNDS, warm_up=int(is_by_hand))
    beside_s, silent_s = statistics.median(found[BESIDE]), statistics.median(found[SILENT])
    added_s = beside_s - silent_s
    goal_ms = in_yardsticks(GOAL_SHARE) * statistics.median(found[BARE]) * seconds * 1e-6
    bare_s, least_s = statistics.median(found[BARE_START]), statistics.median(found[LEAST_START])
    if is_by_hand:
        print(f"beside a silent command: {silent_s / seconds:.3%} of a core")
        print(f"each observation adds {added_s / (RATE * seconds) * 1e6:.2f} us, {added_s / seconds:.3%} of a core")
    per_second = {BARE: found[BARE], BESIDE: [value / seconds * 1e9 for value in found[BESIDE]]}
    show(
        [
            Row(
                f"agent and control plane beside {RATE:,} observations a second, CPU of a second",
                BARE,
                ratios(per_second, BESIDE, BARE),
                in_yardsticks(GOAL_SHARE),
                f"{beside_s / seconds:.2%} of a core in {seconds:g} s",
                unmet=(
                    f"start and end of agent and step are {silent_s * 1e3:.0f} ms of CPU whatever the step does: a bare "
                    f"interpreter takes {bare_s * 1e3:.0f}, one with the libraries of any supervisor (processes, sockets, "
                    f"JSON) {least_s * 1e3:.0f} of the goal's {goal_ms:.0f}; "
                    f"what {RATE:,} observations a second add is {added_s / seconds:.2%} of a core"
                ),
            )
        ]
    )


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    main(float(words[0]) if words else SECONDS)
