"""The Grafana dashboards: their queries as Grafana would send them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_VARIABLE = re.compile(r"\$\{(\w+):sqlstring\}|\$__(from|to)")


def dashboard(store: str) -> Mapping[str, Any]:
    """The dashboard over a kind of store."""
    value: Mapping[str, Any] = json.loads((ROOT / "docs" / "reference" / f"grafana-{store}.json").read_text())
    return value


def panel_queries(store: str, values: Mapping[str, list[str]], start_ms: int, stop_ms: int) -> dict[str, str]:
    """The SQL of each panel, by its title, with variables and times in it."""

    def value_of(match: re.Match[str]) -> str:
        if match[2]:
            return str({"from": start_ms, "to": stop_ms}[match[2]])
        return ",".join("'" + value.replace("'", "''") + "'" for value in values[match[1]])

    found = {}
    for panel in dashboard(store)["panels"]:
        [target] = panel["targets"]
        sql = target["rawSql"] if store == "postgresql" else target["rawQueryText"]
        found[panel["title"]] = _VARIABLE.sub(value_of, sql)
        assert "$" not in found[panel["title"]]
    return found


def variable_queries(store: str) -> dict[str, str]:
    """The SQL of each variable, by its name."""
    return {
        variable["name"]: variable["query"]
        for variable in dashboard(store)["templating"]["list"]
        if variable["type"] == "query"
    }
