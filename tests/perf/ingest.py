"""How fast records come in, beside voir's Multiplexer: `python tests/perf/ingest.py`.

8 processes write records as fast as they are taken. Measured is the time from the moment at which all may write until every
record is on the disk, and checked that all are there, of each process in order: through sink, agent and control plane, and
through voir's Multiplexer and json from the same processes.

By hand it also prints the CPU that the harness used and its most memory, whether records of 1 MB pass whole, and how far
apart eight instances of a group start.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rows import ROOT, Row, in_turn, ratios, show

from milabench.events.run_writer import RunWriter, create_run
from milabench.execute.agent_client import local_node
from milabench.execute.api import Started
from milabench.execute.engine import ExecutionResult, Overhead, execute
from milabench.plan.model import Plan, Step

PROCESSES = 8
RECORDS = 100_000  # of each process
BATCH = 64  # records in one writing
ROUNDS = 4

# Takes its records from a file, waits at a gate, then writes them as fast as they are taken, in batches of whole records.
WRITER = """
import itertools, json, os, socket, sys
folder, number, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
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
with open(f"{folder}/{number}.{'sink' if sink else 'voir'}", "rb") as file:
    pieces = [b"".join(lines) for lines in iter(lambda: list(itertools.islice(file, batch)), [])]
open(f"{folder}/{number}.ready", "w").close()
open(f"{folder}/gate").close()
for piece in pieces:
    write(piece)
"""
STARTER = """
import subprocess, sys
program, folder, processes, *rest = sys.argv[1:]
writer = [sys.executable, "-S", "-c", program, folder]
running = [subprocess.Popen([*writer, str(number), *rest]) for number in range(int(processes))]
sys.exit(max(child.wait() for child in running))
"""
NUMBERS = re.compile(rb'"batch_id": ?(\d+), ?"writer": ?(\d+)')


def step(name: str, *argv: object, group: str = "") -> Step:
    words = tuple(map(str, argv))
    return Step(
        id=name, bench=name, phase="run", argv=words, env={"MILABENCH_SINK": "@sink"}, needs_data=False, group=group
    )


async def carried_out(
    writer: RunWriter, *steps: Step, tell: Callable[[Any], object] = lambda _: None
) -> ExecutionResult:
    async with local_node(f"ingest-{time.monotonic_ns()}") as node:
        return await execute(Plan(phase="run", steps=steps), {"local": node}, writer, tell)


def write_records(folder: Path) -> None:
    """Prepare what each process is to write: on the sink, and in voir's own form."""
    for number in range(PROCESSES):
        with (folder / f"{number}.sink").open("w") as ours, (folder / f"{number}.voir").open("w") as voirs:
            for i in range(RECORDS):
                data = {"task": "train", "rate": 812.25, "units": "images/s", "time": 1700000000.25, "elapsed": 0.0394}
                text = json.dumps({**data, "n": 32, "batch_id": i, "writer": number}, separators=(",", ":"))
                ours.write(f'{{"event":"data","data":{text},"pipe":"data"}}\n')
                voirs.write(f"{text}\n")


class Gate:
    """Where all writers wait until the last of them has come; `opened` is when they were let go, on the monotonic clock."""

    def __init__(self, folder: Path) -> None:
        self._gate = folder / "gate"
        self._ready = [folder / f"{number}.ready" for number in range(PROCESSES)]
        self.opened = 0.0

    def _watch(self, done: threading.Event) -> None:
        while not all(path.exists() for path in self._ready):
            time.sleep(0.01)
        time.sleep(0.1)  # the last one is about to wait
        self.opened = time.monotonic()
        with self._gate.open("w"):  # lets go whoever waits to open it for reading, or will
            done.wait()

    @contextmanager
    def watched(self) -> Iterator[None]:
        for path in self._ready:
            path.unlink(missing_ok=True)
        if not self._gate.exists():
            os.mkfifo(self._gate)
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(done,))
        thread.start()
        yield
        done.set()
        thread.join()


def count_whole(path: Path) -> int:
    """Records that are there; those of each process must be in order."""
    found: list[list[int]] = [[] for _ in range(PROCESSES)]
    for number, writer in NUMBERS.findall(path.read_bytes()):
        found[int(writer)].append(int(number))
    assert all(numbers == sorted(set(numbers)) for numbers in found)
    return sum(map(len, found))


class Ingest:
    """Both ways to the disk, in a folder in which the records are prepared."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = Gate(folder)
        self.used: list[Overhead] = []
        self.voirs_cpu_s: list[float] = []
        self.torn = 0

    def ours(self) -> float:
        """Seconds from the opening of the gate until all is on the disk, through sink, agent and control plane."""
        writer = create_run(self.folder, "ours", datetime.now())
        many = step("many", sys.executable, "-S", "-c", STARTER, WRITER, self.folder, PROCESSES, BATCH)
        with self.gate.watched():
            done = asyncio.run(carried_out(writer, many))
            took = time.monotonic() - self.gate.opened
        writer.close()
        self.used.append(done.overhead)
        records = writer.path / "many.data"
        assert done.all_passed, done.outcomes
        assert count_whole(records) == PROCESSES * RECORDS
        records.unlink()
        return took

    def voirs(self) -> float:
        """The same by voir's Multiplexer, every entry written as JSON as milabench 1.3 does."""
        from voir.proc import Multiplexer

        path = self.folder / "voir.data"
        # One each, asked in turn, as milabench 1.3 has it: one for several processes fails when the first of them ends.
        waiting = []
        with self.gate.watched():
            for number in range(PROCESSES):
                multiplexer = Multiplexer(timeout=0)
                argv = [sys.executable, "-S", "-c", WRITER, str(self.folder), str(number), str(BATCH)]
                multiplexer.start(argv, info={}, env=dict(os.environ))
                waiting.append(iter(multiplexer))
            while not self.gate.opened:
                time.sleep(0.01)
            began = time.process_time()
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
            took = time.monotonic() - self.gate.opened
        self.voirs_cpu_s.append(time.process_time() - began)
        self.torn += PROCESSES * RECORDS - count_whole(path)
        return took


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


def print_cost(ingest: Ingest) -> None:
    """What both ways cost in CPU and memory."""
    control, agent = (
        statistics.median(getattr(used, name) for used in ingest.used) for name in ("control_cpu_s", "agent_cpu_s")
    )
    print(f"CPU of {PROCESSES * RECORDS:,} records: agent {agent:.2f} s, control plane {control:.2f} s,", end=" ")
    print(f"voir {statistics.median(ingest.voirs_cpu_s):.2f} s")
    if ingest.torn:
        print(f"voir tore {ingest.torn:,} records: it takes half a line for a whole one")
    own, children = (
        resource.getrusage(who).ru_maxrss // 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(f"most memory of this process {own} MiB, of any child {children} MiB")


def main() -> None:
    """Print the row, and by hand what else there is to see."""
    with tempfile.TemporaryDirectory() as folder:
        ingest = Ingest(Path(folder))
        write_records(Path(folder))
        found = in_turn({"ours": ingest.ours, "voir": ingest.voirs}, ROUNDS)
        if "--json" not in sys.argv:
            print_cost(ingest)
            large_records(Path(folder))
            together(Path(folder))
    rates = {name: PROCESSES * RECORDS / statistics.median(took) for name, took in found.items()}
    show(
        [
            Row(
                f"records from {PROCESSES} processes to disk, a second",
                "voir's Multiplexer with json",
                ratios(found, "voir", "ours"),
                15.0,
                f"{rates['ours']:,.0f} and {rates['voir']:,.0f} a second",
                more_is_better=True,
                unmet="agent and control plane take 0.4 us of CPU for a record: 0.15 the kernel's copying (socket, pipe, page"
                " cache), 0.13 the search for its ends and its stamp in the C library, 0.05 the copies of asyncio's StreamReader."
                " Only to read the sockets and write the file takes 0.1. Both work at the same time: on processors that others"
                " use, less of that shows. The disk is waited for at the end, a tenth of the time on an idle machine",
            )
        ]
    )


if __name__ == "__main__":
    main()
