"""What the process of a case sends to the runner, as one line of JSON."""

from __future__ import annotations

from typing import TypedDict


class CasePayload(TypedDict, total=False):
    """`outcome` is always there, the rest where it is known.

    Nanoseconds are those of all `iterations` together, on the wall and of the whole process; memory is in bytes.
    """

    name: str
    outcome: str
    why: str
    detail: str
    iterations: int
    wall_ns: int
    cpu_ns: int
    items: float
    bytes: float
    counters: dict[str, float]
    label: str
    memory: dict[str, int]
    notes: list[str]
