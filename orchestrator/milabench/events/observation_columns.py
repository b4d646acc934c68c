"""Observations that one record holds column by column, as the agent writes them (protocol.md, section 4).

A column is a list with a value for each observation, null where there is none, or one value that all of them have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any

from milabench.dataclass import dataclass
from milabench.events.model import Data, ObservationBatch
from milabench.events.values import LARGEST, SMALLEST, finite_number, whole

NS = 10**9  # not 1e9: an integer is divided before it is rounded
LARGEST_NS = 2**32 - 1
"""Durations up to here fit into four bytes: of plain observations none is longer."""
_PARTS = {"wait": "wait_ns", "forward": "forward_ns", "backward": "backward_ns", "optimizer": "optimizer_ns"}
_MOST = 1 << 20
"""Observations of one record; a number that somebody wrote must not take all memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    task: str
    units: str
    rank: int | None
    clock: str
    is_warmup: bool
    unix_minus_mono_ns: int
    batch_id: Sequence[int]
    t0_ns: Sequence[int]
    host_ns: Sequence[int]
    ns: Sequence[int]
    """On the observation's own clock; `host_ns` itself where that is the host's."""
    n: Sequence[float]
    steps: Sequence[int]
    parts_ns: Mapping[str, Sequence[int | None]]
    epoch_end: frozenset[int]


def single_events(event: Data) -> Iterator[Data]:
    """Yield one event for each observation of a record of columns; any other record as it is."""
    columns = _columns(event.data)
    if columns is None:
        yield event
        return
    for place in range(len(columns.host_ns)):
        yield Data(step=event.step, t=event.t, extra=event.extra, data=_observation(columns, place))


def batch_of(event: Data) -> ObservationBatch | None:
    """Return the observations of a record of columns as a batch; None for other records, and where one of them is not plain."""
    columns = _columns(event.data)
    if columns is None or not _are_plain(columns):
        return None
    waits = [wait_ns for wait_ns in columns.parts_ns.get("wait", ()) if wait_ns is not None]
    count = len(columns.host_ns)
    return ObservationBatch(
        step=event.step,
        task=columns.task,
        rank=columns.rank or 0,
        units=columns.units,
        end=(columns.t0_ns[0] + columns.host_ns[0] + columns.unix_minus_mono_ns) / NS,
        t0_ns=columns.t0_ns,
        ns=columns.ns,
        host_ns=columns.host_ns,
        n=columns.n,
        steps=columns.steps,
        warmup=[columns.is_warmup] * count,
        epoch_end=[place in columns.epoch_end for place in range(count)] if columns.epoch_end else [False] * count,
        wait=math.fsum(waits) / 1e9 if waits and not columns.is_warmup else None,
    )


def _observation(columns: _Columns, place: int) -> dict[str, Any]:
    t0_ns, host_ns, ns, n = columns.t0_ns[place], columns.host_ns[place], columns.ns[place], columns.n[place]
    data: dict[str, Any] = {
        "task": columns.task,
        "rate": n / ns * 1e9 if ns > 0 else None,
        "units": columns.units,
        "time": (t0_ns + host_ns + columns.unix_minus_mono_ns) / NS,
        "elapsed": ns / 1e9,
        "n": n,
        "batch_id": columns.batch_id[place],
        "t0_ns": t0_ns,
        "host_ns": host_ns,
        "clock": columns.clock,
    }
    if columns.rank is not None:
        data["rank"] = columns.rank
    parts = {name: part / 1e9 for name, column in columns.parts_ns.items() if (part := column[place]) is not None}
    if parts:
        data["parts"] = parts
    if columns.steps[place] > 1:
        data["steps"] = columns.steps[place]
    if columns.is_warmup:
        data["warmup"] = True
    if place in columns.epoch_end:
        data["epoch_end"] = True
    if ns <= 0:
        data["nonfinite"] = ["rate"]
    return data


def _are_plain(columns: _Columns) -> bool:
    """Return whether each has a rate, takes time that four bytes hold, and has a place on the host's clock."""
    return (
        _within(columns.host_ns, 1, LARGEST_NS)
        and _within(columns.ns, 2, LARGEST_NS)
        and _within(columns.t0_ns, 0, 2**62)
        and _within(columns.n, SMALLEST, LARGEST)
        and _within(columns.steps, 0, 2**31)
        and abs(columns.unix_minus_mono_ns) < 2**62
    )


def _within(values: Sequence[float], low: float, high: float) -> bool:
    return low <= min(values) and max(values) <= high


def _columns(data: Mapping[str, Any]) -> _Columns | None:
    """Return the columns of a record; None where it is another, or not what the agent writes."""
    count = whole(data.get("observations"), 0)
    task, units, clock = (data.get(name) for name in ("task", "units", "clock"))
    offset_ns, rank = data.get("unix_minus_mono_ns"), data.get("rank")
    host_ns = _wholes(data.get("host_ns"), count)
    steps = _wholes(data.get("steps", 1), count)
    n = _numbers(data.get("n"), count)
    if host_ns is None or steps is None or n is None or type(offset_ns) is not int:
        return None
    # One value stands for all where each observation counts on from the one before, or begins as that ends.
    batch_id = _wholes(data.get("batch_id"), count, accumulate(steps, initial=whole(data.get("batch_id"), 0)))
    t0_ns = _wholes(data.get("t0_ns"), count, accumulate(host_ns, initial=whole(data.get("t0_ns"), 0)))
    ns = _wholes(data["device_ns"], count) if "device_ns" in data else host_ns
    ends = data.get("epoch_end", [])
    parts = {name: data[key] for name, key in _PARTS.items() if key in data}
    if batch_id is None or t0_ns is None or ns is None or not _is_list_of(ends, int):
        return None
    if not (isinstance(task, str) and isinstance(units, str) and isinstance(clock, str)):
        return None
    if rank is not None and whole(rank, -1) < 0:
        return None
    if not all(_is_list_of(column, int, type(None)) and len(column) == count for column in parts.values()):
        return None
    return _Columns(
        task=task,
        units=units,
        rank=rank,
        clock=clock,
        is_warmup=data.get("warmup") is True,
        unix_minus_mono_ns=offset_ns,
        batch_id=batch_id,
        t0_ns=t0_ns,
        host_ns=host_ns,
        ns=ns,
        n=n,
        steps=steps,
        parts_ns=parts,
        epoch_end=frozenset(ends),
    )


def _wholes(column: Any, count: int, from_first: Iterator[int] | None = None) -> list[int] | None:
    """Return a column of whole numbers, where it is one value that many times or what follows `from_first`; None for others."""
    if type(column) is int and 0 < count <= _MOST:
        return [column] * count if from_first is None else list(islice(from_first, count))
    return column if _is_list_of(column, int) and len(column) == count > 0 else None


def _numbers(column: Any, count: int) -> Sequence[float] | None:
    if finite_number(column) is not None and 0 < count <= _MOST:
        return [column] * count
    return column if _is_list_of(column, int, float) and len(column) == count > 0 else None


def _is_list_of(value: Any, *kinds: type) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= set(kinds)
