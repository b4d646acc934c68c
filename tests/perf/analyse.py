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
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from rows import ROOT, Row, in_turn, in_yardsticks, ratios, show, yardstick_ns

sys.path.insert(0, str(ROOT))

from milabench.events.run_writer import RunWriter, create_run
from milabench.events.wire import dump

NOON = datetime(2026, 3, 14, 12)
EACH_SECOND = 1_000
WARMUP = 100
RUNS, BENCHMARKS, LAUNCHES = 100, 50, 3
ROUNDS = 3
MILLION = 1_000_000
MOST_MIB = 100.0
YARDSTICK = "a bare event and append"
SINGLE = "a record each"
REPORT_GOAL_S, COMPARE_GOAL_S, MOST_GROWTH = 1.2, 1.5, 10.5
WHY_REPORT = (
    "three tenths of it are the start of the command, as many the decoding and keeping of two numbers of JSON for each "
    "observation; the rest are two passes for quantiles, one for the spread of rates and one for the dependence of durations, "
    "30 to 55 ns each"
)
WHY_SINGLE = (
    "each is 260 bytes of JSON: msgspec takes about 390 ns to decode and check one (270 ns for its whole numbers alone, 140 ns "
    "to only find its end), and the digest of the records for the summary that is kept 130 ns: these two are all of the goal; "
    "runs are recorded column by column now"
)
WHY_COMPARE = (
    "a quarter of it is no work of ours: the interpreter and its imports 14 %, to read, hash and skim the 35 MB of summaries "
    "5 %, json of manifests and journals 4 %, stat of 15,200 files 3 %; 4,950 quantiles of t and 15,000 of its tails take 10 %; "
    "the rest are 15,000 launches, 5,000 sides, 4,950 ratios with verdicts, 99 indices and 5,000 lines of text, of which no part "
    "takes a tenth. Without garbage collection it would be 4 % less"
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
    """The first report of a million observations, its growth to `most` from a tenth of that, and that of a run of 0.1."""
    sizes = {f"{records:,}": records for records in sorted({MILLION, most, most // 10})}
    paths = {name: run_of(base, f"r{records}", records=records, benchmarks=1) for name, records in sizes.items()}
    paths[SINGLE] = run_of(base, "single", records=MILLION, benchmarks=1, is_single=True)
    seen: dict[str, list[Cost]] = {name: [] for name in paths}

    def first(name: str) -> float:
        (paths[name] / "summary.json").unlink(missing_ok=True)
        seen[name].append(cost("milabench", "report", str(paths[name])))
        return seen[name][-1][1]

    found = in_turn({**{name: partial(first, name) for name in paths}, YARDSTICK: yardstick_ns}, ROUNDS, warm_up=0)
    for path in paths.values():
        shutil.rmtree(path)
    what, large, small = "report of 1,000,000 observations, first time", f"{most:,}", f"{most // 10:,}"
    old = f"{what}, a record each as in 0.1"
    return [
        in_events(f"{what}, CPU", seen[f"{MILLION:,}"], found[YARDSTICK], REPORT_GOAL_S, WHY_REPORT),
        of_memory(f"{what}, memory", seen[f"{MILLION:,}"]),
        in_events(f"{old}, CPU", seen[SINGLE], found[YARDSTICK], REPORT_GOAL_S, WHY_SINGLE),
        of_memory(f"{old}, memory", seen[SINGLE]),
        Row(
            f"report of {large} observations, CPU",
            f"report of {small}",
            ratios(found, large, small),
            MOST_GROWTH,
            " and ".join(shown(seen[name]) for name in (large, small)),
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

    found = in_turn({"compare": compared, YARDSTICK: yardstick_ns}, ROUNDS, warm_up=0)
    what = f"compare of {RUNS} runs of {BENCHMARKS} benchmarks, summarised before"
    return [
        in_events(f"{what}, CPU", seen, found[YARDSTICK], COMPARE_GOAL_S, WHY_COMPARE),
        of_memory(f"{what}, memory", seen),
    ]


def shown(costs: Sequence[Cost]) -> str:
    """The medians in units."""
    wall, processor, mib = map(statistics.median, zip(*costs, strict=True))
    return f"{processor:.2f} s of a processor in {wall:.2f} s, {mib:.0f} MiB"


def in_events(what: str, costs: Sequence[Cost], event_ns: Sequence[float], goal_s: float, unmet: str) -> Row:
    """The row of a CPU time, as so many bare events."""
    events = tuple(processor * 1e9 / ns for (_, processor, _), ns in zip(costs, event_ns, strict=True))
    return Row(what, YARDSTICK, events, in_yardsticks(goal_s), shown(costs), unmet=unmet)


def of_memory(what: str, costs: Sequence[Cost]) -> Row:
    """The row of the highest resident memory, over the limit."""
    over = tuple(mib / MOST_MIB for _, _, mib in costs)
    return Row(what, f"{MOST_MIB:.0f} MiB", over, 1.0, shown(costs))


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


def run_of(
    base: Path,
    name: str,
    *,
    records: int,
    benchmarks: int,
    launches: int = 1,
    seed: int = 1,
    is_single: bool = False,
) -> Path:
    """A run directory as `milabench run` leaves it, with so many observations in it; see `write_step`."""
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
            "suite": {bench: resolved(bench) for bench, _ in steps},
            "system": {"arch": "cpu", "nodes": []},
        }
    )
    draw = random.Random(seed)
    for step in ids.values():
        write_step(writer, step, records // len(ids), draw, is_single=is_single)
    ends = [{"step": step, "attempt": 1, "state": "ended", "outcome": "passed"} for step in ids.values()]
    writer.journal_all([*ends, {"run": "ended", "verdict": "passed"}])
    writer.close()
    return writer.path


def resolved(bench: str) -> dict[str, Any]:
    """A benchmark as a manifest has it, all of its keys with their values."""
    return {
        "name": bench,
        "definition": "torchvision",
        "group": "vision",
        "install_group": "torch",
        "install_variant": "cpu",
        "inherits": "_torchvision",
        "enabled": True,
        "weight": 1.0,
        "tags": ["vision", "training"],
        "url": "",
        "describe": {},
        "max_duration": 600,
        "voir": {"options": {"stop": 60, "interval": "1s"}},
        "plan": {"method": "per_gpu"},
        "argv": {
            "--model": bench,
            "--batch-size": 32,
            "--num-workers": "auto({n_worker}, 8)",
            "--precision": "tf32-fp16",
            "--data": "{milabench_data}/FakeImageNet",
            "--optimizer": "sgd",
            "--epochs": 10,
        },
        "command": [],
        "env": {"OMP_NUM_THREADS": "8"},
        "resources": {},
        "requires_capabilities": [],
        "pip": {},
        "dirs": {},
        "options": {},
    }


def write_step(writer: RunWriter, step: str, records: int, draw: random.Random, *, is_single: bool) -> None:
    """The records of a step: what the agent finds each second in a ring, or, as in runs of 0.1, a record for each observation."""
    writer.append(step, dump({"event": "start", "data": {"command": ["python"]}, "pipe": None, "t": 0.0}) + b"\n")
    begin = now = 10**12
    warm_until, warm = now, min(WARMUP, records // 10)
    usual = draw.gauss(1_000_000, 10_000)
    for first, last in pairwise([0, warm, *range(warm + EACH_SECOND, records, EACH_SECOND), records]):
        took = [max(1000, int(draw.gauss(usual, 0.05 * usual))) for _ in range(first, last)]
        lines = single_records if is_single else columns
        writer.append(step, lines(first, now, took, is_warm=last <= warm))
        now += sum(took)
        warm_until = now if last <= warm else warm_until
    window = {"start_ns": warm_until, "stop_ns": now, "start": warm_until / 1e9, "stop": now / 1e9, "why": "complete"}
    end = {"command": ["python"], "time": now / 1e9, "return_code": 0, "outcome": "passed"}
    writer.append(
        step,
        dump({"event": "data", "data": {"task": "train", "window": window}, "pipe": "data", "t": begin / 1e9}) + b"\n",
    )
    writer.append(step, dump({"event": "end", "data": end, "pipe": None, "t": now / 1e9}) + b"\n")


def columns(first: int, now: int, took: list[int], *, is_warm: bool) -> bytes:
    """One record of observations, each beginning as the one before it ends."""
    data = {
        "observations": len(took),
        "task": "train",
        "units": "images/s",
        "clock": "host",
        "unix_minus_mono_ns": 0,
        "batch_id": first,
        "n": 32,
        "t0_ns": now,
        "host_ns": took,
        "wait_ns": [175_010] * len(took),
        **({"warmup": True} if is_warm else {}),
    }
    return dump({"event": "data", "data": data, "pipe": "data", "t": now / 1e9}) + b"\n"


def single_records(first: int, now: int, took: list[int], *, is_warm: bool) -> bytes:
    """A record for each observation."""
    warm, lines = b',"warmup":true' if is_warm else b"", []
    for place, ns in enumerate(took, start=first):
        lines.append(
            b'{"event":"data","data":{"task":"train","rate":%.7f,"units":"images/s","time":%.6f,"elapsed":%.9f,"n":32,'
            b'"batch_id":%d,"t0_ns":%d,"host_ns":%d,"clock":"host","parts":{"wait":0.000175010}%s},"pipe":"data","t":%.6f}\n'
            % (32e9 / ns, now / 1e9, ns / 1e9, place, now, ns, warm, now / 1e9)
        )
        now += ns
    return b"".join(lines)


if __name__ == "__main__":
    main()
