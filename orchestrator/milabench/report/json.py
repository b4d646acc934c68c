"""Summaries and comparisons as JSON, in the form of protocol.md, section 6."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from milabench.analysis.acceptance_model import Acceptance
from milabench.analysis.comparison_model import Comparison, ComparisonRow, CurveComparison, Index, System
from milabench.analysis.job_mix import JobMix
from milabench.analysis.json_codec import picked, schema_of_type, to_json_value
from milabench.analysis.node_comparison import node_comparison
from milabench.analysis.summary_model import SCHEMA, Failure, Summary
from milabench.analysis.system_diff import Difference, Differences
from milabench.analysis.traces import RunTraces
from milabench.events.values import strict

# What `$schema` says: the `$id` of what `milabench config schema NAME` prints.
REPORT_ID, COMPARISON_ID = "urn:milabench:schema:report", "urn:milabench:schema:comparison"


def render(summaries: Sequence[Summary], traces: RunTraces = None) -> str:
    """Return a single run as its object, and several as `{"schema", "runs": [...]}`."""
    objects = [
        {**summary.to_json(), **({"by_node": to_json_value(rows)} if (rows := node_comparison(summary)) else {})}
        for summary in summaries
    ]
    value = objects[0] if len(objects) == 1 else {"schema": SCHEMA, "runs": objects}
    return json.dumps({"$schema": REPORT_ID, **value}, indent=2, allow_nan=False) + "\n"


def report_schema() -> dict[str, object]:
    """Return the JSON Schema of the result of `render`, and of summary.json, without its head."""
    run = schema_of_type(Summary)
    run |= {
        "properties": {
            "schema": {"const": SCHEMA},
            **run["properties"],
            "by_node": schema_of_type(tuple[ComparisonRow, ...]),
        },
        "required": ["schema", *run["required"]],
    }
    runs = {"schema": {"const": SCHEMA}, "runs": {"type": "array", "items": {"$ref": "#/$defs/run"}}}
    several = {"type": "object", "properties": runs, "required": list(runs)}
    return {"if": {"required": ["runs"]}, "then": several, "else": {"$ref": "#/$defs/run"}, "$defs": {"run": run}}


def render_comparison(comparison: Comparison, differences: Differences = None, traces: RunTraces = None) -> str:
    """Return a comparison as `{"schema", "comparison": {...}}`, field by field, with the description of each system's run."""
    value = {
        "$schema": COMPARISON_ID,
        "schema": SCHEMA,
        "comparison": {
            **picked(comparison, "sentence", "margin", "per", "differs"),
            "warnings": list(comparison.warnings),
            "systems": [_facts(system) for system in comparison.systems],
            "excluded": [{"bench": bench, "why": why} for bench, why in comparison.excluded],
            "indices": [asdict(index) for index in comparison.indices],
            "benchmarks": to_json_value(comparison.rows),
            **({"curves": to_json_value(comparison.curves)} if comparison.curves else {}),
            "job_mix": {"declared": comparison.has_work, "systems": [asdict(mix) for mix in comparison.job_mix]},
            **({} if differences is None else {"differences": [asdict(difference) for difference in differences]}),
        },
    }
    # NaN and Infinity are no JSON: what is not finite is null, and anything that slips through is an error here.
    return json.dumps(strict(value), indent=2, allow_nan=False) + "\n"


def comparison_schema() -> dict[str, object]:
    """Return the JSON Schema of the result of `render_comparison`, without its head."""
    objects = tuple[Mapping[str, Any], ...]
    system: Mapping[str, Any] = {
        **dict.fromkeys(("name", "run", "created", "version", "profile", "verdict"), str),
        "ended": bool,
        "counts": Mapping[str, int],
        "sessions": tuple[str, ...],
        **dict.fromkeys(("system", "software"), Mapping[str, Any]),
        "failures": tuple[Failure, ...],
        **dict.fromkeys(("skipped", "suspects"), objects),
    }
    comparison: Mapping[str, Any] = {
        **dict.fromkeys(("sentence", "per", "differs"), str),
        "margin": float,
        "warnings": tuple[str, ...],
        "systems": objects,
        "excluded": objects,
        "indices": tuple[Index, ...],
        "benchmarks": tuple[ComparisonRow, ...],
        "job_mix": Mapping[str, Any],
    }
    schema = _object(comparison)
    schema["properties"]["systems"]["items"] = _object(system)
    schema["properties"]["job_mix"] = _object({"declared": bool, "systems": tuple[JobMix, ...]})
    schema["properties"]["curves"] = schema_of_type(tuple[CurveComparison, ...])
    schema["properties"]["differences"] = schema_of_type(tuple[Difference, ...])
    properties = {"schema": {"const": SCHEMA}, "comparison": schema}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _object(hints: Mapping[str, object]) -> dict[str, Any]:
    """Return the JSON Schema of an object whose keys all have to be there."""
    properties = {name: schema_of_type(hint) for name, hint in hints.items()}
    return {"type": "object", "properties": properties, "required": list(properties)}


def render_acceptance(acceptance: Acceptance) -> str:
    """Return the verdict with every criterion, for programs."""
    return json.dumps(acceptance.to_json(), indent=2, allow_nan=False) + "\n"


def _facts(system: System) -> dict[str, object]:
    summary = system.summary
    return {
        "name": system.name,
        **picked(summary, "run", "created", "version", "profile", "verdict"),
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
        **({"expenses": [asdict(expense) for expense in system.summary.expenses]} if system.summary.expenses else {}),
    }
