"""The nodes of a run, each compared with the first: benchmarks that ran on several nodes, on each by itself."""

from __future__ import annotations

from milabench.analysis.comparison_model import ComparisonRow, SystemResult, log_level
from milabench.analysis.contrasts import contrast_of, with_verdicts
from milabench.analysis.intervals import log_t_interval
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.two_samples import DEFAULT_MARGIN


def node_comparison(summary: Summary) -> tuple[ComparisonRow, ...]:
    """Return a row for each benchmark with instances on several nodes: its nodes are the sides, all verdicts form a family."""
    rows = (_row(bench) for bench in summary.benchmarks)
    return tuple(with_verdicts([row for row in rows if row is not None]))


def _row(bench: BenchSummary) -> ComparisonRow | None:
    launches: dict[str, dict[int, list[float]]] = {}
    for process in bench.processes:
        node, slash, _ = process.slot.partition("/")
        if slash and process.throughput.units == bench.units:
            launches.setdefault(node, {}).setdefault(process.repeat, []).append(process.throughput.value)
    if len(launches) < 2:
        return None
    sides = [_side(bench, node, by_repeat) for node, by_repeat in sorted(launches.items())]
    return ComparisonRow(
        bench=bench.bench,
        units=bench.units,
        direction=bench.direction,
        weight=bench.weight,
        margin=DEFAULT_MARGIN,
        sides=tuple(sides),
        contrasts=tuple(contrast_of(sides[0], side) for side in sides[1:]),
    )


def _side(bench: BenchSummary, node: str, by_repeat: dict[int, list[float]]) -> SystemResult:
    # The instances of a launch are not independent: they are one value.
    values = tuple(geometric_mean(members) for _, members in sorted(by_repeat.items()))
    return SystemResult(
        system=node,
        outcome=bench.outcome,
        units=bench.units,
        direction=bench.direction,
        value=geometric_mean(values),
        ci95=log_t_interval(values),
        values=values,
        sessions=(len(values),),
        validity=bench.validity,
        doubts=bench.doubts,
        counts=bench.validity != "invalid",
        log_mean=log_level([values], bench.direction, confidence=bench.confidence),
    )
