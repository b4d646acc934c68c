"""How fast records come in, beside voir's Multiplexer: `python tests/perf/ingest.py`.

Prints, all in one run on this machine:
- records a second from 8 processes through sink, agent and control plane to the disk, every one there and in order, the
  same with voir's Multiplexer and json from the same writers, and the ratio; the most memory that the harness used;
- what a benchmark of one second costs around it, by command; how far apart eight instances of a group start;
- whether records of 1 MB pass whole;
- how long a run of 100,000 steps takes to be read and its rest decided.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from milabench.events.attempts import attempts  # noqa: E402
from milabench.events.rundir import RunWriter, create_run, open_run, stems  # noqa: E402
from milabench.execute.agent_client import local_node  # noqa: E402
from milabench.execute.api import Started  # noqa: E402
from milabench.execute.engine import ExecutionResult, execute  # noqa: E402
from milabench.plan.model import (  # noqa: E402
    Plan,
    Step,
    remaining_plan,
)

PROCESSES = 8
RECORDS = 100_000  # of each process
BATCH = 64
ROUNDS = 3

# Prepares its records, then writes them as fast as they are taken, in batches of whole records.
WRITER = """
import json, os, socket, sys, time
number, records, batch = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
sink = os.environ.get("MILABENCH_SINK")
if sink:
    out = socket.socket(socket.AF_UNIX)
    out.connect(sink[5:])
    write = out.sendall
    hello = {"pid": os.getpid(), "role": "rank", "rank": number, "local_rank": number, "world_size": 8}
    write(json.dumps({"hello": hello}).encode() + b"\\n")
else:
    fd = int(os.environ["DATA_FD"])
    def write(data):
        while data:
            data = data[os.write(fd, data):]
def record(i):
    data = {"task": "train", "rate": 812.25, "units": "images/s", "time": 1700000000.25, "elapsed": 0.0394, "n": 32,
            "batch_id": i, "writer": number}
    whole = {"event": "data", "data": data, "pipe": "data"} if sink else data
    return json.dumps(whole, separators=(",", ":")).encode() + b"\\n"
lines = [record(i) for i in range(records)]
pieces = [b"".join(lines[i:i + batch]) for i in range(0, records, batch)]
del lines
start = float(os.environ["START"])
time.sleep(max(0.0, start - time.time()))
for piece in pieces:
    write(piece)
"""
STARTER = """
import subprocess, sys
running = [subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1], str(i), *sys.argv[3:]]) for i in range(int(sys.argv[2]))]
sys.exit(max(child.wait() for child in running))
"""
PREPARING_S = 4.0


def step(name: str, *argv: object, env: Mapping[str, str] | None = None, group: str = "") -> Step:
    words = tuple(str(word) for word in argv)
    env = {"MILABENCH_SINK": "@sink", **(env or {})}
    return Step(id=name, bench=name, phase="run", argv=words, env=env, needs_data=False, group=group)


async def carried_out(
    writer: RunWriter, *steps: Step, tell: Callable[[Any], object] = lambda _: None
) -> ExecutionResult:
    async with local_node(f"ingest-{time.monotonic_ns()}") as node:
        return await execute(Plan(phase="run", steps=steps), {"local": node}, writer, tell)


def read_back(path: Path) -> list[list[int]]:
    """The numbers of each writer's records in a file, in the order in which they stand there."""
    found: list[list[int]] = [[] for _ in range(PROCESSES)]
    with path.open("rb") as file:
        for line in file:
            if b'"batch_id":' in line and b'"writer":' in line:
                data = json.loads(line)["data"]
                if "writer" in data:
                    found[data["writer"]].append(data["batch_id"])
    return found


def ours(base: Path) -> float:
    """Records a second, from the moment at which all may write until all is on disk."""
    writer = create_run(base, "ours", datetime.now())
    start = time.time() + PREPARING_S
    words = (sys.executable, "-S", "-c", STARTER, WRITER, PROCESSES, RECORDS, BATCH)
    done = asyncio.run(carried_out(writer, step("many", *words, env={"START": str(start)})))
    took = time.time() - start
    writer.close()
    assert done.all_passed, done.outcomes
    assert read_back(writer.path / "many.data") == [list(range(RECORDS))] * PROCESSES
    return PROCESSES * RECORDS / took


def voirs(base: Path) -> float:
    """The same by voir's Multiplexer, every entry written as JSON as milabench 1.3 does."""
    from voir.proc import Multiplexer

    path = base / f"voir{time.monotonic_ns()}.data"
    start = time.time() + PREPARING_S
    environ = {**os.environ, "START": str(start)}
    # One each, asked in turn, as milabench 1.3 has it: one for several processes fails when the first of them ends.
    waiting = []
    for number in range(PROCESSES):
        multiplexer = Multiplexer(timeout=0)
        argv = [sys.executable, "-S", "-c", WRITER, str(number), str(RECORDS), str(BATCH)]
        multiplexer.start(argv, info={}, env=environ)
        waiting.append(iter(multiplexer))
    with path.open("w") as file:
        while waiting:
            for entries in tuple(waiting):
                for entry in entries:
                    if entry is None:
                        break
                    file.write(entry.json() + "\n")
                else:
                    waiting.remove(entries)
        file.flush()
        os.fsync(file.fileno())
    took = time.time() - start
    whole = sum(map(len, read_back(path)))
    if whole < PROCESSES * RECORDS:
        print(f"    (voir: {PROCESSES * RECORDS - whole:,} records were torn: it takes half a line for a whole one)")
    return PROCESSES * RECORDS / took


def large_records(base: Path) -> None:
    """Records of 1 MB from 4 processes."""
    writer = create_run(base, "large", datetime.now())
    program = ROOT / "tests" / "programs" / "sink.py"
    done = asyncio.run(carried_out(writer, step("large", sys.executable, "-S", program, "children", 4, 20, 1_000_000)))
    writer.close()
    assert done.all_passed, done.outcomes
    sizes = [len(line) for line in (writer.path / "large.data").open("rb") if b'"number":' in line]
    assert len(sizes) == 80
    assert min(sizes) > 1_000_000
    print(f"records of 1 MB: all {len(sizes)} whole")


def around_one_second(base: Path) -> None:
    """What `milabench run` takes beyond the second that its benchmark takes."""
    suite = base / "second.yaml"
    suite.write_text('second: {install_group: s, tags: [s], plan: {method: njobs, n: 1}, command: [sleep, "1"]}\n')
    argv = [
        sys.executable,
        "-m",
        "milabench",
        "run",
        "--use-current-env",
        "--config",
        str(suite),
        "--profile",
        "quick",
    ]
    environ = {**os.environ, "MILABENCH_BASE": str(base / "second"), "PYTHONPATH": str(ROOT)}
    inside, whole = [], []
    for _ in range(ROUNDS):
        began = time.monotonic()
        subprocess.run(argv, env=environ, check=True, capture_output=True)
        whole.append(time.monotonic() - began - 1.0)
        journal = sorted((base / "second" / "runs").iterdir())[-1] / "journal.jsonl"
        times = [json.loads(line)["t"] for line in journal.read_text().splitlines()]
        inside.append(times[-1] - times[0] - 1.0)
    print(
        f"around a benchmark of one second: {statistics.median(inside):.3f} s in the run,"
        f" {statistics.median(whole):.3f} s of the whole command"
    )


def together(base: Path) -> None:
    """How far apart the processes of eight instances of a group start."""
    writer = create_run(base, "together", datetime.now())
    told: list[Any] = []
    clock = "import time; print(time.time())"
    steps = [step(f"i{number}", sys.executable, "-S", "-c", clock, group="g") for number in range(8)]
    asyncio.run(carried_out(writer, *steps, tell=told.append))
    writer.close()
    assert sum(isinstance(each, Started) for each in told) == 8
    starts = []
    for each in steps:
        events = [json.loads(line) for line in (writer.path / f"{each.id}.data").read_text().splitlines()]
        starts.append(events[0]["data"]["time"])
    print(f"eight instances of a group start within {(max(starts) - min(starts)) * 1e3:.0f} ms")


def long_journal(base: Path, count: int = 100_000) -> None:
    """A run of many steps that was cut off at its last one, read, and what is left decided."""
    steps = [replace(step(f"b{i}.D0", "true", group=f"b{i}"), env={}) for i in range(count)]
    plan = Plan(phase="run", steps=tuple(steps))
    writer = create_run(base, "long", datetime.now())
    writer.write_manifest({"phase": "run", "plan": plan.to_json(), "files": stems(plan.steps)})
    entries = [{"step": each.id, "attempt": 1, "state": "planned", "node": "local"} for each in steps]
    for each in steps[:-1]:
        entries.append({"step": each.id, "attempt": 1, "node": "local", "state": "started", "pid": 1, "pgid": 1})
        entries.append({"step": each.id, "attempt": 1, "node": "local", "state": "ended", "outcome": "passed"})
    writer.journal_all(entries)
    writer.close()
    began = time.monotonic()
    run = open_run(writer.path)
    tried = attempts(run.journal)
    passed = frozenset(name for name in run.files if any(each.outcome == "passed" for each in tried.get(name, ())))
    rest = remaining_plan(plan, passed)
    took = time.monotonic() - began
    assert [each.id for each in rest.steps] == [steps[-1].id]
    print(f"a run of {count:,} steps: read, and its rest decided, in {took:.2f} s")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        rates: dict[str, list[float]] = {"ours": [], "voir": []}
        for _ in range(ROUNDS):  # in turn, so that whatever else this machine does hits both
            rates["ours"].append(ours(base))
            rates["voir"].append(voirs(base))
        medians = {name: statistics.median(each) for name, each in rates.items()}
        print(f"{PROCESSES} processes, {PROCESSES * RECORDS:,} records, median of {ROUNDS}:")
        for name, each in rates.items():
            print(f"    {name:5} {medians[name]:>9,.0f} records/s   ({', '.join(f'{rate:,.0f}' for rate in each)})")
        print(f"    ratio {medians['ours'] / medians['voir']:.1f}")
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"    most memory of this process: {most} MiB")
        large_records(base)
        around_one_second(base)
        together(base)
        long_journal(base)


if __name__ == "__main__":
    main()
