"""Numbers that environment variables override."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", int, float)


def get_observation_count(value: int) -> int:
    """Return how many observations a program makes that counts itself: BENCHMATE_OBSERVATION_COUNT, else `value`."""
    return _override("BENCHMATE_OBSERVATION_COUNT", int, value)


def get_poll_interval(value: float) -> float:
    """Return the seconds between two samples of a monitor: BENCHMATE_POLL_INTERVAL, else `value`."""
    return _override("BENCHMATE_POLL_INTERVAL", float, value)


def _override(name: str, number: Callable[[str], T], value: T) -> T:
    text = os.environ.get(name)
    if not text:
        return value
    try:
        return number(text)
    except ValueError:
        raise SystemExit(f"{name}={text!r}: expected a number") from None
