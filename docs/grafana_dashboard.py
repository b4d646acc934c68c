"""Makes the Grafana dashboards over the results store, one for each kind of store, from one list of panels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Kind of store -> the plugin of its data source, and the time of a run in seconds since 1970, of a text that may be empty.
DIALECTS: Mapping[str, tuple[str, str]] = {
    "postgresql": (
        "grafana-postgresql-datasource",
        "CAST(extract(epoch FROM CASE WHEN runs.created LIKE '____-__-__T%' THEN runs.created::timestamptz END) AS bigint)",
    ),
    "sqlite": ("frser-sqlite-datasource", "CAST(strftime('%s', runs.created) AS INTEGER)"),
}
SHOWN = "{time} BETWEEN $__from / 1000 AND $__to / 1000 AND runs.host IN (${{host:sqlstring}})"
OF_BENCHMARKS = (
    "FROM results JOIN runs ON runs.run = results.run WHERE results.bench IN (${{benchmark:sqlstring}}) AND " + SHOWN
)
# Title, kind of panel, grid position (x, y, width, height), what it shows, SQL.
PANELS: tuple[tuple[str, str, tuple[int, int, int, int], str, str], ...] = (
    (
        "Runs",
        "table",
        (0, 0, 14, 9),
        "The newest runs, with how many of their benchmarks have a valid number.",
        "SELECT {time} * 1000 AS started, runs.name AS run, runs.host, runs.device, runs.profile, runs.verdict, "
        "count(results.bench) AS benchmarks, sum(CASE WHEN results.validity = 'valid' THEN 1 ELSE 0 END) AS valid "
        "FROM runs LEFT JOIN results ON results.run = runs.run WHERE " + SHOWN + " "
        "GROUP BY runs.run, runs.created, runs.name, runs.host, runs.device, runs.profile, runs.verdict "
        "ORDER BY runs.created DESC, runs.run LIMIT 50",
    ),
    (
        "Validity",
        "timeseries",
        (14, 0, 10, 9),
        "Benchmarks of each run by what their number is worth; those that did not pass by their outcome.",
        "SELECT {time} AS time, CASE WHEN results.outcome <> 'passed' THEN results.outcome "
        "ELSE COALESCE(results.validity, 'no number') END AS metric, count(*) AS value " + OF_BENCHMARKS + " "
        "GROUP BY 1, 2 ORDER BY 1",
    ),
    (
        "Fleet",
        "table",
        (0, 9, 14, 10),
        "The newest number of each machine and benchmark, and its ratio to the mean of all machines with the same devices.",
        "WITH newest AS (SELECT runs.host, runs.device, runs.created, results.bench, results.perf, results.units, "
        "results.validity, results.outcome, row_number() OVER (PARTITION BY runs.host, runs.device, results.bench "
        "ORDER BY runs.created DESC, runs.run) AS age " + OF_BENCHMARKS + ") "
        "SELECT host, device, bench AS benchmark, outcome, perf, units, "
        "perf / avg(perf) OVER (PARTITION BY bench, units, device) AS ratio, validity "
        "FROM newest WHERE age = 1 ORDER BY bench, ratio, host, device",
    ),
    (
        "Doubts",
        "table",
        (14, 9, 10, 10),
        "Why numbers are suspect or invalid, and in how many runs.",
        "SELECT results.bench AS benchmark, results.reasons, count(*) AS runs " + OF_BENCHMARKS + " "
        "AND results.reasons <> '' GROUP BY results.bench, results.reasons ORDER BY runs DESC, results.bench, results.reasons",
    ),
    (
        "$benchmark",
        "timeseries",
        (0, 19, 24, 8),
        "Rate of an instance with its 95 % interval, by machine and unit. Invalid numbers are left out.",
        "SELECT {time} AS time, runs.host || ', ' || runs.device || ', ' || results.units AS metric, "
        "results.perf AS perf, results.ci95_low AS low, results.ci95_high AS high " + OF_BENCHMARKS + " "
        "AND results.outcome = 'passed' AND results.perf IS NOT NULL AND COALESCE(results.validity, '') <> 'invalid' "
        "ORDER BY 1, 2",
    ),
)
VARIABLES = {
    "benchmark": "SELECT DISTINCT bench FROM results ORDER BY bench",
    "host": "SELECT DISTINCT host FROM runs ORDER BY host",
}


def dashboard(dialect: str) -> str:
    """Return the dashboard for a kind of store, as Grafana imports it."""
    plugin, _ = DIALECTS[dialect]
    source = {"type": plugin, "uid": "${datasource}"}
    asked = {"type": "datasource", "name": "datasource", "label": "Results store", "query": plugin, "hide": 0}
    chosen = {
        "includeAll": True,
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
    }
    named = [
        {"type": "query", "name": name, "label": name, "datasource": source, "query": sql, "definition": sql, **chosen}
        for name, sql in VARIABLES.items()
    ]
    value = {
        "title": "milabench",
        "uid": f"milabench-{dialect}",
        "description": "Results of benchmarks: trends, validity, fleet.",
        "tags": ["milabench"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "browser",
        "time": {"from": "now-90d", "to": "now"},
        "templating": {"list": [asked, *named]},
        "annotations": {"list": []},
        "panels": [_panel(number, dialect, source) for number in range(len(PANELS))],
    }
    return json.dumps(value, indent=1) + "\n"


def _panel(number: int, dialect: str, source: Mapping[str, str]) -> dict[str, Any]:
    title, kind, (x, y, width, height), about, sql = PANELS[number]
    text = sql.format(time=DIALECTS[dialect][1])
    is_series = kind == "timeseries"
    # Each plugin reads its own keys.
    target = (
        {"rawQuery": True, "rawSql": text, "format": "time_series" if is_series else "table", "editorMode": "code"}
        if dialect == "postgresql"
        else {
            "rawQueryText": text,
            "queryText": text,
            "queryType": "time series" if is_series else "table",
            "timeColumns": ["time"] if is_series else [],
        }
    )
    custom = {"drawStyle": "bars", "stacking": {"mode": "normal"}} if title == "Validity" else {"showPoints": "always"}
    by_name = {"started": "dateTimeAsIso", "ratio": "percentunit"}
    overrides = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
        for name, unit in by_name.items()
        if f" AS {name}" in text
    ]
    return {
        "id": number + 1,
        "title": title,
        "type": kind,
        "description": about,
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": {"custom": custom} if is_series else {}, "overrides": overrides},
        "targets": [{"refId": "A", "datasource": source, **target}],
        **({"repeat": "benchmark", "repeatDirection": "h", "maxPerRow": 2} if title == "$benchmark" else {}),
    }
