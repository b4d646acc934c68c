"""A stored summary -> the summary, so that it is not computed again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from milabench.analysis.ab_run import ab_of
from milabench.analysis.json_codec import from_json_value, picked
from milabench.analysis.summary_model import SCHEMA, BenchSummary, ReplicateResult, Summary
from milabench.analysis.throughput import Throughput
from milabench.errors import RecordError
from milabench.events.shapes import RATE_SHAPE, SUMMARY_SHAPE, require_shape
from milabench.events.values import mappings_in


def summary_from_json(value: Mapping[str, object], manifest: Mapping[str, object] | None = None) -> Summary:
    """Return the summary whose `to_json` this is, also of an earlier version. Raises RecordError for anything else.

    `manifest` is its run's, from which the pairs of an A/B run are found again.
    """
    _require_summary(value)
    with _refusing_values():
        require_shape(value, SUMMARY_SHAPE)
        summary = from_json_value(Summary, value)
        benches = tuple(map(_with_processes, summary.benchmarks))
    return replace(summary, benchmarks=benches, ab=ab_of(manifest or {}, benches))


def summary_of_benches(
    value: Mapping[str, object], benches: tuple[BenchSummary, ...], manifest: Mapping[str, object]
) -> Summary:
    """Return the same where the benchmarks have been read, and the value is known to have the shape of a summary."""
    _require_summary(value)
    with _refusing_values():
        summary = from_json_value(Summary, {**value, "benchmarks": []})
    return replace(summary, benchmarks=benches, ab=ab_of(manifest, benches))


def _require_summary(value: Mapping[str, object]) -> None:
    if "projection" in value or any("projected_value" in row for row in mappings_in(value.get("benchmarks"))):
        raise RecordError("holds projected values, which nobody measured: they stand in no report and no comparison")
    if value.get("schema") != SCHEMA:
        raise RecordError(
            f"is no summary or report of a run: schema {value.get('schema')!r}, and this version reads {SCHEMA}"
        )


@contextlib.contextmanager
def _refusing_values() -> Iterator[None]:
    """Raise RecordError for a value that a summary cannot have."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"is no summary or report of a run: {error}") from None


def _with_processes(bench: BenchSummary) -> BenchSummary:
    """Return the benchmark with its processes, which are written as its `rate` metrics, and with values derived from them."""
    processes = processes_from_json(bench.metrics)
    alike = (process for process in processes if process.throughput.units == processes[0].throughput.units)
    return replace(
        bench,
        processes=processes,
        instances=len({process.slot for process in processes}),
        replicates=len({process.repeat for process in alike}),
    )


def processes_from_json(metrics: Iterable[Mapping[str, object]]) -> tuple[ReplicateResult, ...]:
    """Return the replicates among the metrics of a benchmark. Raises KeyError, TypeError or ValueError."""
    rates = (metric for metric in metrics if metric.get("metric") == "rate" and "repeat" in metric)
    return tuple(map(_process_from_json, rates))


def rate_to_json(process: ReplicateResult) -> dict[str, Any]:
    """Return the `rate` entry of a benchmark's metrics: a replicate with its throughput, in a single object."""
    rate = process.throughput
    encoded = {
        "step": process.steps[0],
        "steps": list(process.steps),
        "metric": "rate",
        **picked(rate, "value", "units", "direction", "basis"),
        "place": process.slot,
        "repeat": process.repeat,
        **picked(rate, "observations", "steps_rate", "between_steps", "pauses"),
        **picked(rate, "warm_up_steps", "all_steps", "period", *(("stall",) if rate.stall else ())),
        **picked(rate, "spread_within", "doubts", *(("left_out",) if rate.left_out else ())),
        **picked(rate, "latency", "totals"),
    }
    if rate.warmup_left is not None:
        encoded["warmup_left"] = rate.warmup_left
    return encoded


def _process_from_json(rate: Mapping[str, Any]) -> ReplicateResult:
    require_shape(rate, RATE_SHAPE)
    return ReplicateResult(
        steps=tuple(map(str, rate.get("steps") or (rate["step"],))),
        slot=str(rate.get("place", "")),
        repeat=int(rate["repeat"]),
        throughput=from_json_value(Throughput, rate),
    )
