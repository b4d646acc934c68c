"""A stored summary -> the summary, so that it is not computed again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milabench.analysis.ab_run import ab_of
from milabench.analysis.json_codec import picked, to_json_value
from milabench.analysis.summary_model import SCHEMA, BenchSummary, ReplicateResult, Summary
from milabench.analysis.throughput import Throughput
from milabench.errors import RecordError
from milabench.events.stored_json import Number, Whole, from_json_value
from milabench.events.stored_run import Object, StoredOptions, StoredSystem, Texts
from milabench.events.values import mappings_in


class StoredCounts(Struct):
    """How many steps of a benchmark ended how."""

    planned: Whole
    passed: Whole
    failed: Whole
    skipped: Whole
    missing: Whole
    cancelled: Whole


class StoredMetric(Struct):
    """A number of a step. A repeat's throughput, which has more keys, is the metric `rate` with a `repeat`."""

    metric: str
    value: Number
    step: str | None = None
    units: str | None = None
    direction: str | None = None
    place: str | None = None
    case: str | None = None
    part: str | None = None
    rank: Whole | None = None
    repeat: Whole | None = None
    params: Object = None
    steps: Texts = None
    reasons: Texts = None


class Sources(Struct, kw_only=True):
    """What a stored summary is made of: the version of the analysis, and digests of the records and of the summary itself.

    `stat` is of sizes and times of the records' files, `content` of their contents.
    """

    analysis: Whole
    stat: str
    content: str
    summary: str


class _WithSources(Struct):
    made_of: Sources


class _KeptBench(Struct):
    counts: StoredCounts
    metrics: list[StoredMetric] = []


class _KeptParts(Struct):
    """What a summary has as it was written, with keys that are not declared."""

    system: StoredSystem
    options: StoredOptions
    benchmarks: list[_KeptBench]


def summary_from_json(value: Mapping[str, object], manifest: Mapping[str, object] | None = None) -> Summary:
    """Return the summary whose `to_json` this is, also of an earlier version. Raises RecordError for anything else.

    `manifest` is its run's, from which the pairs of an A/B run are found again.
    """
    if "projection" in value or any("projected_value" in row for row in mappings_in(value.get("benchmarks"))):
        raise RecordError("holds projected values, which nobody measured: they stand in no report and no comparison")
    if value.get("schema") != SCHEMA:
        raise RecordError(
            f"is no summary or report of a run: schema {value.get('schema')!r}, and this version reads {SCHEMA}"
        )
    try:
        return _completed(from_json_value(Summary, value), manifest or {})
    except ValueError as error:
        raise RecordError(f"is no summary or report of a run: {error}") from None


def summary_from_bytes(content: bytes, manifest: Mapping[str, object]) -> Summary:
    """Return the same of `summary.json`, in a sixth of the time. Raises ValueError where it is none."""
    return _completed(msgspec.json.decode(content, type=Summary), manifest)


def sources_of(content: bytes) -> Sources:
    """Return what `summary.json` says that it is made of. Raises ValueError where it does not say so."""
    return msgspec.json.decode(content, type=_WithSources).made_of


def _completed(stored: Summary, manifest: Mapping[str, object]) -> Summary:
    """Return a summary with what is not written, or not in one piece. Raises ValueError for parts of another shape."""
    parts = {name: getattr(stored, name) for name in ("system", "options")}
    kept = [{"counts": bench.counts, "metrics": bench.metrics} for bench in stored.benchmarks]
    from_json_value(_KeptParts, {**parts, "benchmarks": kept})
    benches = tuple(map(_with_processes, stored.benchmarks))
    return replace(stored, benchmarks=benches, expenses=(), ab=ab_of(manifest, benches))


def _with_processes(bench: BenchSummary) -> BenchSummary:
    """Return the benchmark with its processes, which are written as its `rate` metrics, and with values derived from them.

    Its ratio to another run is left out.
    """
    processes = processes_from_json(bench.metrics)
    alike = (process for process in processes if process.throughput.units == processes[0].throughput.units)
    return replace(
        bench,
        processes=processes,
        instances=len({process.slot for process in processes}),
        replicates=len({process.repeat for process in alike}),
        ratio=None,
        ratio_ci95=None,
        reference_validity="",
        no_ratio="",
    )


def processes_from_json(metrics: Iterable[Mapping[str, object]]) -> tuple[ReplicateResult, ...]:
    """Return the replicates among the metrics of a benchmark. Raises ValueError."""
    rates = (metric for metric in metrics if metric["metric"] == "rate" and metric.get("repeat") is not None)
    return tuple(map(_process_from_json, rates))


def rate_to_json(process: ReplicateResult) -> dict[str, Any]:
    """Return the `rate` entry of a benchmark's metrics: a replicate with its throughput, in a single object."""
    rate = process.throughput
    return {
        "step": process.steps[0],
        "steps": list(process.steps),
        "metric": "rate",
        **picked(rate, "value", "units", "direction", "basis"),
        "place": process.slot,
        "repeat": process.repeat,
        **to_json_value(rate),
    }


def _process_from_json(rate: Mapping[str, Any]) -> ReplicateResult:
    steps = tuple(rate.get("steps") or (rate.get("step"),))
    if not all(steps):
        raise ValueError("has a rate of no step")
    return ReplicateResult(
        steps=steps,
        slot=rate.get("place") or "",
        repeat=rate["repeat"],
        throughput=from_json_value(Throughput, rate),
    )
