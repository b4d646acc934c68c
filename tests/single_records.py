"""The records of a `.data` file, one for each observation, also where the file holds them column by column."""

from __future__ import annotations

import json
from typing import Any

from milabench.events.model import Data
from milabench.events.observation_columns import single_events


def single_records(lines: bytes | str) -> list[dict[str, Any]]:
    """Every record of whole lines, decoded."""
    return [single for line in lines.splitlines() for single in _singles(json.loads(line))]


def _singles(record: dict[str, Any]) -> list[dict[str, Any]]:
    if record["event"] != "data":
        return [record]
    return [{**record, "data": event.data} for event in single_events(Data(step="", data=record["data"]))]
