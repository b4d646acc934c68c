"""Summaries of runs that nobody made: numbers of nodes and launches as a run's records would have them."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Final

from milabench.analysis.bench_summary import with_rate
from milabench.analysis.score import Score
from milabench.analysis.summary_model import BenchSummary, Failure, ReplicateResult, Summary
from milabench.analysis.throughput import Direction, Throughput
from tests.rehearsal.noise import Logs

_NO_COUNTS: Final = {"planned": 0, "passed": 0, "failed": 0, "skipped": 0, "missing": 0, "cancelled": 0}


def times_as_fast(value: float, ratio: float, direction: Direction) -> float:
    """Return a number of something that is so many times as fast."""
    return value / ratio if direction == "lower" else value * ratio


def node_name(number: int) -> str:
    """Return what a simulated node is called."""
    return f"n{number:04}"


def simulated_bench(
    name: str,
    value: float,
    units: str,
    direction: Direction,
    ratio: float,
    logs: Logs,
    failed: Set[tuple[int, int]] = frozenset(),
) -> BenchSummary:
    """Return a benchmark as a run of one instance on each node comes to, at so many times the value."""
    centre = times_as_fast(value, ratio, direction)
    sign = -1.0 if direction == "lower" else 1.0
    slots = [f"{node_name(node)}/all" for node in range(len(logs[0]))]
    processes = tuple(
        ReplicateResult(
            steps=(f"{name}.{launch}.{node}",),
            slot=slots[node],
            repeat=launch,
            throughput=Throughput(value=centre * math.exp(sign * log), units=units, direction=direction),
        )
        for launch, row in enumerate(logs)
        for node, log in enumerate(row)
        if (launch, node) not in failed
    )
    planned = len(logs) * len(slots)
    summary = BenchSummary(
        bench=name,
        outcome="failed" if failed else "passed",
        counts={**_NO_COUNTS, "planned": planned, "passed": len(processes), "failed": planned - len(processes)},
        processes=processes,
        units=units,
        direction=direction,
        validity="valid",
        failures=tuple(
            Failure(step=f"{name}.{launch}.{node}", why="simulated", detail="", log=None)
            for launch, node in sorted(failed)
        ),
    )
    return with_rate(summary, len(slots))


def simulated_run(name: str, benches: Sequence[BenchSummary]) -> Summary:
    """Return the summary of a run of these benchmarks."""
    return Summary(run=name, verdict="passed", benchmarks=tuple(benches), score=Score())
