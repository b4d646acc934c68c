"""Observations in column form, as the agent writes them into a record (protocol.md, section 4).

A column is a list with a value for each observation, null where there is none, or a single value for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

from milabench.events.model import Data, Event, ObservationBatch, Other
from milabench.events.values import finite_number, whole
from milabench.events.wire import decode

NS = 10**9  # not 1e9: an integer is divided before it is rounded
LARGEST_NS = 2**32 - 1
"""Durations up to here fit into four bytes: of plain observations none is longer."""
LATEST_NS = 2**62
"""No plain observation begins later on the clock of its host."""
_PARTS = {"wait": "wait_ns", "forward": "forward_ns", "backward": "backward_ns", "optimizer": "optimizer_ns"}
MOST_OBSERVATIONS = 1 << 20
"""Maximum number of observations in a record: a number in a file must not take all memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """The observations of a record, and what a batch of them leaves out. `batch_id` is as it was recorded."""

    batch: ObservationBatch
    clock: str
    has_rank: bool
    unix_minus_mono_ns: int
    batch_id: int | Sequence[int]
    parts_ns: Mapping[str, Sequence[int | None]]


def events_of_line(line: bytes, step: str, *, is_whole: bool = True) -> Iterator[Event]:
    """Yield the events of a line. An unreadable line is an `Other` of the kind `format_error`, an incomplete line nothing."""
    try:
        event = decode(line, step)
    except ValueError:
        if is_whole and line.strip():
            yield Other(step=step, event="format_error", data=line.decode("utf-8", "backslashreplace"))
        return
    yield from single_events(event) if isinstance(event, Data) else (event,)


def single_events(event: Data) -> Iterator[Data]:
    """Yield an event for each observation of a record of columns. Any other record as it is."""
    columns = _columns_of_any(event.data, event.step)
    if columns is None:
        yield event
        return
    for index, batch_id in enumerate(_batch_ids(columns)):
        data = _observation(columns, index, batch_id)
        yield Data(step=event.step, t=event.t, extra=event.extra, data=data)


def _total(column: Sequence[int | None]) -> int | None:
    """Return the sum of the known values of a column. None where none is known."""
    try:
        return sum(column) if column else None  # type: ignore[arg-type]  # all of it is known, as nearly always
    except TypeError:
        known = [value for value in column if value is not None]
        return sum(known) if known else None


def _batch_ids(columns: RecordColumns) -> Sequence[int]:
    """Return the number of each observation's first step. A single value is enough where each counts on from the previous."""
    first = columns.batch_id
    if not isinstance(first, int):
        return first
    steps = columns.batch.steps
    return list(islice(accumulate(steps, initial=whole(first, 0)), len(steps)))


def _observation(columns: RecordColumns, index: int, batch_id: int) -> dict[str, Any]:
    batch = columns.batch
    t0_ns, host_ns, ns, n = batch.t0_ns[index], batch.host_ns[index], batch.ns[index], batch.n[index]
    data: dict[str, Any] = {
        "task": batch.task,
        "rate": n / ns * 1e9 if ns > 0 else None,
        "units": batch.units,
        "time": (t0_ns + host_ns + columns.unix_minus_mono_ns) / NS,
        "elapsed": ns / 1e9,
        "n": n,
        "batch_id": batch_id,
        "t0_ns": t0_ns,
        "host_ns": host_ns,
        "clock": columns.clock,
    }
    if columns.has_rank:
        data["rank"] = batch.rank
    parts = {name: part / 1e9 for name, column in columns.parts_ns.items() if (part := column[index]) is not None}
    if parts:
        data["parts"] = parts
    if batch.steps[index] > 1:
        data["steps"] = batch.steps[index]
    if batch.warmup[index]:
        data["warmup"] = True
    if batch.epoch_end[index]:
        data["epoch_end"] = True
    if ns <= 0:
        data["nonfinite"] = ["rate"]
    return data


def _columns_of_any(data: Mapping[str, object], step: str) -> RecordColumns | None:
    """Return the columns of a record. None for another record, or one that the agent does not write."""
    rank, number = data.get("rank"), data.get("n")
    is_what_the_agent_writes = (
        whole(data.get("observations"), 0) > 0
        and all(isinstance(data.get(name), str) for name in ("task", "units", "clock"))
        and type(data.get("unix_minus_mono_ns")) is int
        and (rank is None or whole(rank, -1) >= 0)
        and all(_are_wholes(data.get(name)) for name in ("batch_id", "t0_ns", "host_ns"))
        and all(_are_wholes(data[name]) for name in ("device_ns", "steps") if name in data)
        and (finite_number(number) is not None or _is_list_of(number, int, float))
        and all(_is_list_of(data[name], int, type(None)) for name in _PARTS.values() if name in data)
        and _is_list_of(data.get("epoch_end", []), int)
    )
    return columns_of(data, step) if is_what_the_agent_writes else None


def columns_of(data: Mapping[str, Any], step: str) -> RecordColumns | None:
    """Return the columns of a record whose values are of the kinds that the agent writes. None where any has another length."""
    count, begin_ns, batch_id, rank = data["observations"], data["t0_ns"], data["batch_id"], data.get("rank")
    host_ns, n, steps = (_column(value, count) for value in (data["host_ns"], data["n"], data.get("steps", 1)))
    ns = _column(data["device_ns"], count) if "device_ns" in data else host_ns
    if host_ns is None or n is None or steps is None or ns is None:
        return None
    if isinstance(begin_ns, int):  # each of the others begins where the one before it ended
        begin_ns = list(accumulate(host_ns[:-1], initial=whole(begin_ns, 0)))
    parts = {name: data[key] for name, key in _PARTS.items() if key in data}
    lists = (begin_ns, *parts.values(), *(() if isinstance(batch_id, int) else (batch_id,)))
    if any(len(column) != count for column in lists):
        return None
    is_warmup, ends = data.get("warmup") is True, frozenset(data.get("epoch_end", ()))
    waited_ns = None if is_warmup else _total(parts.get("wait", ()))
    batch = ObservationBatch(
        step=step,
        task=data["task"],
        rank=rank or 0,
        units=data["units"],
        end=(begin_ns[0] + host_ns[0] + data["unix_minus_mono_ns"]) / NS,
        t0_ns=begin_ns,
        ns=ns,  # the list of host_ns itself where the clock is the host's
        host_ns=host_ns,
        n=n,
        steps=steps,
        warmup=[is_warmup] * count,
        epoch_end=[index in ends for index in range(count)] if ends else [False] * count,
        wait=None if waited_ns is None else waited_ns / 1e9,
    )
    return RecordColumns(
        batch=batch,
        clock=data["clock"],
        has_rank=rank is not None,
        unix_minus_mono_ns=data["unix_minus_mono_ns"],
        batch_id=batch_id,
        parts_ns=parts,
    )


def _column(value: object, count: int) -> Sequence[Any] | None:
    """Return a column, also where a single value represents all. None where it has another length."""
    if isinstance(value, list):
        return value if len(value) == count else None
    return [value] * count if count <= MOST_OBSERVATIONS else None


def _are_wholes(value: object) -> bool:
    """Return whether this is a whole number or a list of them."""
    return type(value) is int or _is_list_of(value, int)


def _is_list_of(value: object, *kinds: type) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= set(kinds)
