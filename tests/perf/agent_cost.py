"""What supervision costs: `python tests/perf/agent_cost.py [SECONDS]`.

Prints the CPU that agent and control plane take together beside a benchmark of 1000 observations a second (the promise:
under 0.5 % of a core), what one observation costs the agent, how long a step that does nothing takes, and how fast
records pass.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from milabench.events.rundir import create_run  # noqa: E402
from milabench.execute.agent_client import local_node  # noqa: E402
from milabench.execute.engine import ExecutionResult, execute  # noqa: E402
from milabench.plan.model import Plan, Step  # noqa: E402

PROGRAMS = ROOT / "tests" / "programs"
RATE = 1000


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


def main(seconds: float) -> None:
    program = str(PROGRAMS / "sink.py")
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        beside = step("steps", sys.executable, "-S", PROGRAMS / "steps.py", RATE, seconds)
        done = asyncio.run(carried_out(base, beside))
        overhead = done.overhead
        print(f"beside {RATE} observations/s for {seconds:g} s: {overhead.share:.3%} of a core")
        print(f"    agent {overhead.agent_cpu_s:.3f} s, control plane {overhead.control_cpu_s:.3f} s CPU")
        each_us = overhead.agent_cpu_s / (RATE * seconds) * 1e6
        print(f"    {each_us:.2f} us of the agent per observation, start and end included")

        idle = asyncio.run(carried_out(base, step("sleep", "sleep", seconds))).overhead
        print(f"beside a silent command: {idle.share:.3%} of a core")

        talk = f"import time\nfor i in range({int(seconds * 100)}): print('epoch', i, flush=True); time.sleep(0.01)"
        chatty = asyncio.run(carried_out(base, step("talk", sys.executable, "-S", "-c", talk))).overhead
        print(f"beside 100 lines/s: {chatty.share:.3%} of a core")

        start = time.monotonic()
        asyncio.run(carried_out(base, *(step(f"true{i}", "true") for i in range(20))))
        print(f"a step that does nothing: {(time.monotonic() - start) / 20 * 1e3:.1f} ms")

        start = time.monotonic()
        done = asyncio.run(carried_out(base, step("many", sys.executable, "-S", program, "children", 8, 25_000, 100)))
        took = time.monotonic() - start
        print(f"8 processes, {200_000 / took:,.0f} records/s through the sink, on disk ({done.overhead.to_json()})")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
