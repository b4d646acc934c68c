"""Records as JSON: the keys of an observation (protocol.md, 4), and strict encoding."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from benchmate.ring import EPOCH_END, WARM_UP, RingEntry

PART_NAMES = ("wait", "forward", "backward", "optimizer")

# Not json.dumps: a program may have patched that, even by a probe of ours.
_encode = json.JSONEncoder(allow_nan=False).encode


def observation(
    entry: RingEntry, meta: Mapping[str, object], unix_minus_mono_ns: int, world_size: int = 1
) -> dict[str, object]:
    """Return the `data` of an observation. Its time is the unix time at which the step ended."""
    on_device = entry.device_ns >= 0
    elapsed_ns = entry.device_ns if on_device else entry.host_ns
    data: dict[str, object] = {
        "task": meta["task"],
        "rate": entry.items / (max(elapsed_ns, 1) / 1e9),
        "units": meta["units"],
        "time": (entry.t0_ns + entry.host_ns + unix_minus_mono_ns) / 1e9,
        "elapsed": elapsed_ns / 1e9,
        "n": entry.items,
        "batch_id": entry.batch_id,
        "t0_ns": entry.t0_ns,
        "host_ns": entry.host_ns,
        "clock": "event" if on_device else "host",
    }
    if entry.flags & WARM_UP:
        data["warmup"] = True
    if entry.flags & EPOCH_END:
        data["epoch_end"] = True
    if world_size > 1:
        data["rank"] = meta["rank"]
    if entry.steps > 1:
        data["steps"] = entry.steps
    parts = zip(PART_NAMES, (entry.wait_ns, *(entry.parts_ns or ())), strict=False)
    known_parts = {name: part_ns / 1e9 for name, part_ns in parts if part_ns >= 0}
    if known_parts:
        data["parts"] = known_parts
    return data


def window_record(start_ns: int, stop_ns: int, unix_minus_mono_ns: int, why: str) -> dict[str, object]:
    """Return the `window` of a task's record: its begin and end, by the process's clock and in unix seconds."""
    begin, end = ((ns + unix_minus_mono_ns) / 1e9 for ns in (start_ns, stop_ns))
    return {"start_ns": start_ns, "stop_ns": stop_ns, "start": begin, "stop": end, "why": why}


def encode(value: Mapping[str, object]) -> bytes:
    """Return a line of strict JSON without its newline.

    NaN and infinities become null and are listed under `nonfinite`, next to them. Numbers of array libraries become plain
    numbers. Anything else that JSON does not know becomes its text.
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError):
        text = _encode(_plain(value))
    # A lone surrogate cannot be written as UTF-8; json escapes it already, so ASCII is all there is.
    return text.encode("ascii")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        plain: dict[str, object] = {str(key): _plain(item) for key, item in value.items()}
        nonfinite = [str(key) for key, item in value.items() if _is_nonfinite(item)]
        if nonfinite:
            plain["nonfinite"] = nonfinite
        return plain
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    number = as_number(value)
    if number is None:
        return text_of(value)
    return number if math.isfinite(number) else None


def text_of(value: object) -> str:
    """Return the text of an object of the program, which may raise in the making of it."""
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__}: {type(error).__name__} instead of a text>"


def _is_nonfinite(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_is_nonfinite(item) for item in value)
    number = as_number(value)
    return number is not None and not math.isfinite(number)


def as_number(value: object) -> float | int | None:
    """Return the plain number that a Python, numpy, torch or JAX scalar holds. None when it is none of them."""
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        return None
    try:
        number: Any = value.item()  # type: ignore[attr-defined]
    except Exception:  # it has none, or is an array of several elements, or a class named like that: whatever it raises
        return None
    return number if isinstance(number, (int, float)) else None
