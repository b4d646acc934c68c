"""The JSON Schemas of the files that users write and programs read, by name.

Each is derived from the declarations of its reader or writer. They are shipped as config/schemas/<name>.schema.json,
where the suites' first lines and editors find them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    title, source = SCHEMAS[name]
    described = seams.handler(source) if source in seams.HANDLERS else seams.resolved(source)
    body = _of_struct(described) if isinstance(described, type) else described()
    return {"$schema": DIALECT, "$id": schema_id(name), "title": title, **body}


def schema_text(name: str) -> str:
    """Return a schema as its file has it."""
    return json.dumps(schema_of(name), indent=1) + "\n"


def _of_struct(kind: type) -> dict[str, Any]:
    from msgspec.json import schema

    return schema(kind)


SCHEMAS: Mapping[str, tuple[str, str]] = {
    "suite": ("milabench suite or system file", "suite_check.schema_docs:json_schema"),
    "acceptance": ("acceptance criteria of milabench", "schema acceptance"),
    "tender": ("tender of milabench, procurement.yaml", "schema tender"),
    "offer": ("offer of milabench, offer.yaml", "schema offer"),
    "report": ("milabench report of runs as JSON, and summary.json of a run", "report.json:report_schema"),
    "comparison": ("milabench comparison as JSON", "report.json:comparison_schema"),
    "plan": ("milabench plan as JSON", "events.stored_run:StoredPlan"),
    "manifest": ("manifest.json of a milabench run", "events.stored_run:StoredManifest"),
    "journal": ("a line of journal.jsonl of a milabench run", "events.stored_run:JournalEntry"),
    "record": ("a line of a step's .data file in a milabench run", "events.wire:record_schema"),
}
"""The title of each, and what describes it: a function or a declared struct, in a module or behind a handler of a feature."""
