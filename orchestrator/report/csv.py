"""Summaries as comma-separated values: one row per run and benchmark, full precision, units in their own column."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from orchestrator.analysis.summary import BenchSummary, Summary
from orchestrator.report.model import ordered

_SAME_AS_JSON = (
    *("bench", "outcome", "ngpu", "processes", "perf", "units", "direction"),
    *("spread_within", "spread_devices", "spread_processes"),
    *("memory_peak_MiB", "energy_J", "first_step_s", "weight", "score", "validity"),
)
_COUNTS = ("planned", "passed", "failed", "skipped", "missing", "cancelled")
FIELDS = ("run", "profile", *_SAME_AS_JSON, "ci95_low", "ci95_high", "sem", "spread", *_COUNTS, "reasons", "failures")


def render(summaries: Sequence[Summary]) -> str:
    """All runs in one table; what is not known is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    for summary in summaries:
        for bench in ordered(summary.benchmarks):
            writer.writerow(_row(summary, bench))
    return text.getvalue()


def _row(summary: Summary, bench: BenchSummary) -> dict[str, Any]:
    told = bench.to_json()
    low, high = bench.ci95 or (None, None)
    return {
        "run": summary.run,
        "profile": summary.profile,
        **{name: told[name] for name in _SAME_AS_JSON},
        "ci95_low": low,
        "ci95_high": high,
        "sem": bench.sem,
        "spread": bench.spread,
        **{name: bench.counts.get(name, 0) for name in _COUNTS},
        "reasons": " ".join(bench.reasons),
        "failures": "; ".join(f"{one.step}: {one.why}" for one in bench.failures),
    }
