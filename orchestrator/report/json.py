"""A summary as JSON, in the form of docs/protocol.md, section 6."""

from __future__ import annotations

import json
from collections.abc import Sequence

from orchestrator.analysis.summary import SCHEMA, Summary


def render(summaries: Sequence[Summary]) -> str:
    """One run as its object; several as `{"schema", "runs": [...]}`."""
    objects = [summary.to_json() for summary in summaries]
    value = objects[0] if len(objects) == 1 else {"schema": SCHEMA, "runs": objects}
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
