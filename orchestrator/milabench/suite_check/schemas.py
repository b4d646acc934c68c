"""The JSON Schemas of the files that users write and programs read, by name.

Each is derived from the declarations of its reader or writer. They are shipped as config/schemas/<name>.schema.json,
where the suites' first lines and editors find them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from milabench import seams
from milabench.workflow.files import ROOT

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FOLDER = ROOT / "config" / "schemas"


def schema_id(name: str) -> str:
    """Return the `$id` of a schema, which the JSON that follows it names in its `$schema`."""
    return f"urn:milabench:schema:{name}"


def schema_file(name: str) -> Path:
    """Return the shipped file of a schema."""
    return FOLDER / f"{name}.schema.json"


def schema_of(name: str) -> dict[str, object]:
    """Return a schema of `SCHEMAS`, with its head."""
    title, body = SCHEMAS[name]
    return {"$schema": DIALECT, "$id": schema_id(name), "title": title, **body()}


def schema_text(name: str) -> str:
    """Return a schema as its file has it."""
    return json.dumps(schema_of(name), indent=1) + "\n"


def _of_run(kind: str) -> dict[str, Any]:
    from msgspec.json import schema

    from milabench.events import stored_run

    return schema(getattr(stored_run, kind))


def _suite() -> dict[str, object]:
    from milabench.suite_check.schema_docs import json_schema

    return json_schema()


def _of_a_feature(what: str) -> dict[str, object]:
    schema: dict[str, Any] = seams.handler(what)()
    return schema


def _report() -> dict[str, object]:
    from milabench.report.json import report_schema

    return report_schema()


def _comparison() -> dict[str, object]:
    from milabench.report.json import comparison_schema

    return comparison_schema()


def _record() -> dict[str, object]:
    from milabench.events.wire import record_schema

    return record_schema()


SCHEMAS: Mapping[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "suite": ("milabench suite or system file", _suite),
    "acceptance": ("acceptance criteria of milabench", lambda: _of_a_feature("schema acceptance")),
    "tender": ("tender of milabench, procurement.yaml", lambda: _of_a_feature("schema tender")),
    "offer": ("offer of milabench, offer.yaml", lambda: _of_a_feature("schema offer")),
    "report": ("milabench report of runs as JSON, and summary.json of a run", _report),
    "comparison": ("milabench comparison as JSON", _comparison),
    "plan": ("milabench plan as JSON", lambda: _of_run("StoredPlan")),
    "manifest": ("manifest.json of a milabench run", lambda: _of_run("StoredManifest")),
    "journal": ("a line of journal.jsonl of a milabench run", lambda: _of_run("JournalEntry")),
    "record": ("a line of a step's .data file in a milabench run", _record),
}
