"""Access to parsed JSON of unknown shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value when it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}
