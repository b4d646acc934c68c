"""What analysing and reporting a run costs, and a comparison of 100 runs of 50 benchmarks that were summarised before.

    python tests/perf/analyse.py [--most 1000000] [--files 4]

Each size is analysed by `milabench report` in a process of its own: seconds of wall clock and of processor, the highest
resident memory, and bytes more for each record more. The first report reads every record; the second finds the summary
kept beside them. A page reads the records to draw them; where there is no summary yet, one pass is for both. The rows are CPU
time and memory of first reports, and of the comparison.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rows import ROOT, Row, in_turn, in_yardsticks, show, yardstick_ns

sys.path.insert(0, str(ROOT))

from milabench.events.rundir import RunWriter, create_run
from milabench.events.wire import dump

NOON = datetime(2026, 3, 14, 12)
BATCH = 20_000
WARMUP = 100
RUNS, BENCHMARKS, LAUNCHES = 100, 50, 3
ROUNDS = 3
MOST_MIB = 100.0
YARDSTICK = "a bare event and append"
REPORT_GOAL_S, COMPARE_GOAL_S, MOST_GROWTH = 1.2, 1.5, 10.5
WHY_REPORT = (
    "a record is a line of about 260 bytes of JSON: msgspec takes about 420 ns to decode and check one, 150 ns to look for its "
    "end alone, so that half of what is left is below what a reader of such lines without a compiler of its own can do"
)
WHY_COMPARE = (
    "4,950 ratios with their intervals, tests and verdicts take about half of it, the text of nine million characters, mostly "
    "blanks, an eighth; what is read of the summaries beside the runs takes a quarter"
)
WHY_MEMORY = (
    "of 100 runs their manifests, 15,000 launches, the bytes of their summaries and the text of nine million characters"
)

Cost = tuple[float, float, float]
"""Seconds of wall clock, seconds of processor, MiB."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--most", type=int, default=10_000_000, help="records of the largest run (2.6 GB for the default)"
    )
    parser.add_argument("--files", type=int, default=1, help="files that the records of a run are in")
    parser.add_argument("--json", action="store_true", help="rows for the table, of at most 2,000,000 records")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        if not asked.json:
            smallest = report_sizes(Path(base), asked.most, asked.files)
            print(f"an interpreter that only imports the verb: {smallest:.0f} MiB")
        most = 2_000_000 if asked.json else asked.most
        show([*report_rows(Path(base), most), *compare_rows(Path(base))])


def report_rows(base: Path, most: int) -> list[Row]:
    """The first report of a million records, and its growth to `most` from a tenth of that."""
    sizes = sorted({1_000_000, most, most // 10})
    paths = {records: run_of(base, f"r{records}", records=records, benchmarks=1) for records in sizes}
    seen: dict[int, list[Cost]] = {records: [] for records in sizes}

    def first(records: int) -> float:
        (paths[records] / "summary.json").unlink(missing_ok=True)
        seen[records].append(cost("milabench", "report", str(paths[records])))
        return seen[records][-1][1]

    measures = {str(records): lambda records=records: first(records) for records in sizes}
    found = in_turn({**measures, YARDSTICK: yardstick}, ROUNDS, warm_up=0)
    for path in paths.values():
        shutil.rmtree(path)
    own = found[str(1_000_000)]
    memory = [mib for _, _, mib in seen[1_000_000]]
    growth = [large / small for large, small in zip(found[str(most)], found[str(most // 10)], strict=True)]
    return [
        in_events("report of 1,000,000 records, first time, CPU", own, found[YARDSTICK], REPORT_GOAL_S, WHY_REPORT),
        of_memory("report of 1,000,000 records, first time, memory", memory),
        Row(
            f"report of {most:,} records, CPU",
            f"report of {most // 10:,}",
            tuple(growth),
            MOST_GROWTH,
            f"{statistics.median(found[str(most)]):.2f} and {statistics.median(found[str(most // 10)]):.2f} s, "
            f"{max(mib for _, _, mib in seen[most]):.0f} MiB",
        ),
    ]


def compare_rows(base: Path) -> list[Row]:
    """RUNS runs of BENCHMARKS benchmarks, LAUNCHES launches each, summarised before."""
    names = [
        str(
            run_of(
                base, f"c{run}", records=BENCHMARKS * LAUNCHES * 30, benchmarks=BENCHMARKS, launches=LAUNCHES, seed=run
            )
        )
        for run in range(RUNS)
    ]
    cost("milabench", "report", *names)
    seen: list[Cost] = []

    def compared() -> float:
        seen.append(cost("milabench", "compare", *names))
        return seen[-1][1]

    found = in_turn({"compare": compared, YARDSTICK: yardstick}, ROUNDS, warm_up=0)
    what = f"compare of {RUNS} runs of {BENCHMARKS} benchmarks, summarised before"
    return [
        in_events(f"{what}, CPU", found["compare"], found[YARDSTICK], COMPARE_GOAL_S, WHY_COMPARE),
        of_memory(f"{what}, memory", [mib for _, _, mib in seen], WHY_MEMORY),
    ]


def yardstick() -> float:
    return statistics.median(yardstick_ns() for _ in range(9))


def in_events(what: str, seconds: Sequence[float], event_ns: Sequence[float], goal_s: float, unmet: str) -> Row:
    """The row of a cost in seconds, as so many bare events."""
    return Row(
        what,
        YARDSTICK,
        tuple(s * 1e9 / ns for s, ns in zip(seconds, event_ns, strict=True)),
        in_yardsticks(goal_s),
        f"{statistics.median(seconds):.2f} s",
        unmet=unmet,
    )


def of_memory(what: str, mib: Sequence[float], unmet: str = "") -> Row:
    return Row(
        what,
        f"{MOST_MIB:.0f} MiB",
        tuple(each / MOST_MIB for each in mib),
        1.0,
        f"{statistics.median(mib):.0f} MiB",
        unmet=unmet,
    )


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
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
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
    ends = [{"step": step, "attempt": 1, "state": "ended", "outcome": "passed"} for step in ids.values()]
    writer.journal_all([*ends, {"run": "ended", "verdict": "passed"}])
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


if __name__ == "__main__":
    main()
