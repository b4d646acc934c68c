"""Summaries and comparisons as JSON, in the form of protocol.md, section 6."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from milabench.acceptance.evaluate import Acceptance
from milabench.analysis.comparison_model import Comparison, System
from milabench.analysis.json_codec import strict
from milabench.analysis.summary_model import SCHEMA, Summary
from milabench.analysis.system_diff import Differences
from milabench.analysis.traces import RunTraces


def render(summaries: Sequence[Summary], traces: RunTraces = None) -> str:
    """Return one run as its object; several as `{"schema", "runs": [...]}`."""
    objects = [summary.to_json() for summary in summaries]
    value = objects[0] if len(objects) == 1 else {"schema": SCHEMA, "runs": objects}
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def render_comparison(comparison: Comparison, differences: Differences = None, traces: RunTraces = None) -> str:
    """Return a comparison as `{"schema", "comparison": {...}}`, field by field; of each system, what its run says of itself."""
    value = {
        "schema": SCHEMA,
        "comparison": {
            **{name: getattr(comparison, name) for name in ("sentence", "margin", "per", "differs")},
            "warnings": list(comparison.warnings),
            "systems": [_facts(system) for system in comparison.systems],
            "excluded": [{"bench": bench, "why": why} for bench, why in comparison.excluded],
            "indices": [asdict(index) for index in comparison.indices],
            "benchmarks": [asdict(row) for row in comparison.rows],
            "job_mix": {"declared": comparison.has_work, "systems": [asdict(mix) for mix in comparison.job_mix]},
            **({} if differences is None else {"differences": [asdict(difference) for difference in differences]}),
        },
    }
    # NaN and Infinity are no JSON: what is not finite is null, and anything that slips through is an error here.
    return json.dumps(strict(value), indent=2, allow_nan=False) + "\n"


def render_acceptance(acceptance: Acceptance) -> str:
    """Return the verdict with every criterion, for programs."""
    return json.dumps(acceptance.to_json(), indent=2, allow_nan=False) + "\n"


def _facts(system: System) -> dict[str, Any]:
    summary = system.summary
    return {
        "name": system.name,
        **{name: getattr(summary, name) for name in ("run", "created", "version", "profile", "verdict")},
        "ended": all(session.summary.is_ended for session in system.sessions),
        "counts": system.counts,
        "sessions": [session.summary.run for session in system.sessions],
        "system": dict(summary.system),
        "software": dict(summary.software),
        "failures": [asdict(failure) for failure in system.failures],
        "skipped": [{"what": what, "why": why} for what, why in system.skipped],
        "suspects": [
            {"bench": bench, "validity": validity, "reasons": list(reasons)}
            for bench, validity, reasons in system.suspects
        ],
    }
