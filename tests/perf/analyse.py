"""What analysing and reporting a run costs: prints time and memory for 10^5, 10^6 and 10^7 records, and for a comparison.

    python tests/perf/analyse.py [--most 1000000] [--files 4]

Each size is analysed by `milabench report` in a process of its own: seconds of wall clock and of processor, the highest
resident memory, and bytes more for each record more. The first report reads every record; the second finds the summary
kept beside them. A page reads the records to draw them; where there is no summary yet, one pass is for both. The comparison
is of 100 runs of 50 benchmarks, summarised before.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from milabench.events.rundir import RunWriter, create_run  # noqa: E402
from milabench.events.wire import dump  # noqa: E402

NOON = datetime(2026, 3, 14, 12)
BATCH = 20_000
WARMUP = 100
RUNS, BENCHMARKS, LAUNCHES = 100, 50, 3

Cost = tuple[float, float, float]
"""Seconds of wall clock, seconds of processor, MiB."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--most", type=int, default=10_000_000, help="records of the largest run (2.6 GB for the default)"
    )
    parser.add_argument("--files", type=int, default=1, help="files that the records of a run are in")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        smallest = report_sizes(Path(base), asked.most, asked.files)
        print(f"an interpreter that only imports the verb: {smallest:.0f} MiB")
        compare_many(Path(base))


def report_sizes(base: Path, most: int, files: int) -> float:
    nothing = cost("milabench.cli.report")
    before: tuple[int, float] | None = None
    for records in (100_000, 1_000_000, 10_000_000):
        if records > most:
            break
        path = run_of(base, f"n{records}", records=records, benchmarks=files)
        size = sum(file.stat().st_size for file in path.iterdir()) / 2**20
        first = cost("milabench", "report", str(path))
        again = cost("milabench", "report", str(path))
        page = cost("milabench", "report", str(path), "--format", "html")
        (path / "summary.json").unlink()
        anew = cost("milabench", "report", str(path), "--format", "html")
        more = f", {(first[2] - before[1]) * 2**20 / (records - before[0]):.1f} bytes more a record" if before else ""
        told = f"{first[0]:.2f} s ({first[1]:.2f} s of processor), {first[2]:.0f} MiB{more}; again {again[0]:.2f} s"
        told += f"; as a page {page[0]:.2f} s ({page[1]:.2f}), both {anew[0]:.2f} s ({anew[1]:.2f}), {anew[2]:.0f} MiB"
        print(f"{records:>10,} records ({size:.0f} MiB): {told}", flush=True)
        before = records, first[2]
        shutil.rmtree(path)
    return nothing[2]


def compare_many(base: Path) -> None:
    """RUNS runs of BENCHMARKS benchmarks, LAUNCHES launches each, summarised before."""
    paths = [
        run_of(base, f"c{run}", records=BENCHMARKS * LAUNCHES * 30, benchmarks=BENCHMARKS, launches=LAUNCHES, seed=run)
        for run in range(RUNS)
    ]
    names = [str(path) for path in paths]
    cost("milabench", "report", *names)
    wall, processor, memory = cost("milabench", "compare", *names)
    print(
        f"compare of {RUNS} runs of {BENCHMARKS} benchmarks: {wall:.2f} s ({processor:.2f} s of processor), {memory:.0f} MiB"
    )


# The highest resident memory by the process itself: what wait4 tells includes the parent's, copied when it forked.
CHILD = """
import atexit, runpy, sys

@atexit.register
def tell():
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(peak.split()[1], file=sys.stderr, flush=True)

runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def cost(module: str, *argv: str) -> Cost:
    """What a Python process takes; its output is thrown away, and an exit code above 1 is an error."""
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, module, *argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode > 1:
        raise SystemExit(f"{module} {' '.join(argv[:2])}: ended with {child.returncode}: {said}")
    return wall, usage.ru_utime + usage.ru_stime, int(said.split()[-1]) / 1024


def run_of(base: Path, name: str, *, records: int, benchmarks: int, launches: int = 1, seed: int = 1) -> Path:
    """A run directory as `milabench run` leaves it, with so many observations in it."""
    writer = create_run(base, name, NOON)
    steps = [(f"bench{bench}", launch) for bench in range(benchmarks) for launch in range(launches)]
    ids = {(bench, launch): f"{bench}.D0.R{launch}" for bench, launch in steps}
    planned = [
        {
            "id": ids[step],
            "bench": step[0],
            "tag": "D0",
            "repeat": step[1],
            "node": "local",
            "devices": [0],
            "config": {"name": step[0], "weight": 1.0, "plan": {"method": "per_gpu"}},
        }
        for step in steps
    ]
    writer.write_manifest(
        {
            "phase": "run",
            "name": name,
            "plan": {"steps": planned, "skipped": []},
            "files": {each: each for each in ids.values()},
            "profile": "default",
            "system": {"arch": "cpu", "nodes": []},
        }
    )
    draw = random.Random(seed)
    for step in ids.values():
        write_step(writer, step, records // len(ids), draw)
    writer.journal({"run": "ended", "verdict": "passed"})
    writer.close()
    return writer.path


def write_step(writer: RunWriter, step: str, records: int, draw: random.Random) -> None:
    writer.append(step, dump({"event": "start", "data": {"command": ["python"]}, "pipe": None, "t": 0.0}) + b"\n")
    begin = now = 10**12
    warm_until = now
    usual = draw.gauss(1_000_000, 10_000)
    for first in range(0, records, BATCH):
        lines = []
        for place in range(first, min(first + BATCH, records)):
            is_warm = place < min(WARMUP, records // 10)
            took = max(1000, int(draw.gauss(usual, 0.05 * usual)))
            lines.append(
                b'{"event":"data","data":{"task":"train","rate":%.7f,"units":"images/s","time":%.6f,"elapsed":%.9f,"n":32,'
                b'"batch_id":%d,"t0_ns":%d,"host_ns":%d,"clock":"host","parts":{"wait":0.000175010}%s},"pipe":"data","t":%.6f}\n'
                % (
                    32e9 / took,
                    now / 1e9,
                    took / 1e9,
                    place,
                    now,
                    took,
                    b',"warmup":true' if is_warm else b"",
                    now / 1e9,
                )
            )
            now += took
            warm_until = now if is_warm else warm_until
        writer.append(step, b"".join(lines))
    window = {"start_ns": warm_until, "stop_ns": now, "start": warm_until / 1e9, "stop": now / 1e9, "why": "complete"}
    end = {"command": ["python"], "time": now / 1e9, "return_code": 0, "outcome": "passed"}
    writer.append(
        step,
        dump({"event": "data", "data": {"task": "train", "window": window}, "pipe": "data", "t": begin / 1e9}) + b"\n",
    )
    writer.append(step, dump({"event": "end", "data": end, "pipe": None, "t": now / 1e9}) + b"\n")
    writer.journal({"step": step, "attempt": 1, "state": "ended", "outcome": "passed"})
    writer.finish(step)


if __name__ == "__main__":
    main()
