"""Merges mappings as suites are merged: the later value wins, mappings are merged key by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DELETE = object()


def merge(old: Any, new: Any) -> Any:
    """Return `old` overridden by `new`. DELETE takes a key out, {"append": [...]} makes a list longer."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        kept = {
            key: merge(value, new[key]) if key in new else value
            for key, value in old.items()
            if new.get(key) is not DELETE
        }
        return {**kept, **{key: cleanup(value) for key, value in new.items() if key not in old and value is not DELETE}}
    if isinstance(old, list) and isinstance(new, Mapping):
        if "append" not in new:
            raise TypeError("a list is overridden by a list, or by a mapping with the key `append`")
        return old + list(new["append"])
    return cleanup(new)


def cleanup(value: Any) -> Any:
    """Return the value without the keys that are DELETE."""
    if isinstance(value, Mapping):
        return {key: cleanup(each) for key, each in value.items() if each is not DELETE}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(cleanup(each) for each in value)
    return value
