"""What hashes of plans are made of: JSON that is sorted and without spaces, the same on every machine and in every version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from milabench.redaction import is_secret_name, may_hold_secret

Writer: TypeAlias = Callable[[Any], bytes]
_SCALARS: Final = frozenset({str, int, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list, tuple})


def canonical_json(value: Any) -> bytes:
    """Return a value's canonical JSON."""
    # Kept in records: any change here makes every old plan look like another one.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def fast_writer() -> Writer:
    """Return what writes plain values in an eighth of the time; its result is canonical only where `is_plain` holds."""
    from msgspec.json import Encoder  # ten milliseconds: for the hashes of hundreds of steps

    return Encoder(order="deterministic").encode


def digest(value: Any) -> str:
    """Return the sha256, in hexadecimal, of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def shown_json(value: Any, write: Writer) -> bytes | None:
    """Return the canonical JSON of settings that may be shown as they are; None where something may have to be masked."""
    try:
        data = write(value)
    except (TypeError, ValueError):  # what is no JSON, and letters that UTF-8 does not have
        return None
    return data if is_plain(value) and not may_hold_secret(data) else None


def is_plain(value: Any) -> bool:
    """Return whether every writer of JSON writes a mapping or list alike, and nothing in it stands under a secret's name."""
    if type(value) is dict:
        if any(map(is_secret_name, value)):
            return False
        value = value.values()
    elif any(type(word) is str and word[:1] == "-" and is_secret_name(word) for word in value):
        return False  # the next word may be its value
    for item in value:
        kind = type(item)
        if kind in _SCALARS:
            continue
        if kind in _CONTAINERS:
            if item and not is_plain(item):
                return False
        # Where writers differ: in numbers with an exponent, and in those that are none.
        elif kind is not float or not (item == 0 or 1e-4 <= abs(item) < 1e15):
            return False
    return True
