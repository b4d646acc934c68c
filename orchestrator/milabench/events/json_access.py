"""Access to parsed JSON of unknown shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value when it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings_in(value: Any) -> list[Mapping[str, Any]]:
    """Return the items of a list, each as a mapping; nothing when the value is no list."""
    return [as_mapping(item) for item in value] if isinstance(value, list | tuple) else []
