"""Gauges of runs as an ExportMetricsServiceRequest of OpenTelemetry, in the JSON mapping of OTLP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from milabench.analysis.summary_model import Summary
from milabench.events.values import as_mapping
from milabench.history.gauges import Gauge, created_at, gauges
from milabench.shown import visible
from milabench.version import __version__

_NS = 10**9


def metrics_request(summaries: Iterable[Summary]) -> str:
    """Return the request on a line, as a collector takes it by HTTP and reads it from a file."""
    request = {"resourceMetrics": [_resource_metrics(summary) for summary in summaries]}
    return json.dumps(request, separators=(",", ":")) + "\n"


def _resource_metrics(summary: Summary) -> dict[str, object]:
    when = created_at(summary)
    # 64-bit integers are strings in the mapping.
    time = {} if when is None else {"timeUnixNano": str(int(when.timestamp()) * _NS)}
    scope = {"name": "milabench", "version": __version__}
    return {
        "resource": {"attributes": _attributes(_resource(summary))},
        "scopeMetrics": [{"scope": scope, "metrics": [_metric(gauge, time) for gauge in gauges(summary)]}],
    }


def _metric(gauge: Gauge, time: Mapping[str, str]) -> dict[str, object]:
    points = [{"attributes": _attributes(labels), **time, "asDouble": value} for labels, value in gauge.samples]
    return {"name": gauge.name, "description": gauge.text, "unit": gauge.code, "gauge": {"dataPoints": points}}


def _resource(summary: Summary) -> Mapping[str, str | Sequence[str] | None]:
    """Return the measured system. Names follow OpenTelemetry's conventions as far as there are any."""
    nodes = summary.nodes
    hosts = [str(node.get("hostname") or node.get("name") or "") for node in nodes]
    # A resource of the conventions is one host.
    node = nodes[0] if len(nodes) == 1 else {}
    return {
        "service.name": "milabench",
        "service.version": summary.version,
        "host.name": hosts[0] if len(hosts) == 1 else None,
        "host.cpu.model.name": as_mapping(node.get("cpu")).get("model"),
        "os.description": node.get("os"),
        "milabench.hosts": hosts if len(hosts) > 1 else None,
        "milabench.devices": [str(device.get("name") or "") for device in summary.devices],
        "milabench.run": summary.run,
        "milabench.profile": summary.profile,
    }


def _attributes(values: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value]


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": visible(str(value))}
