"""Observations, many at a time: what most lines of a run are, decoded in batches and kept column by column.

A batch holds plain observations only, those with the keys that docs/protocol.md, section 4, lists and nothing else; every other
line stays an event of its own. Order is kept within a task and rank, not between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from milabench.events.model import Event, Line, Other
from milabench.events.numbers import LARGEST, SMALLEST
from milabench.events.wire import decode

# How an observation begins, as our agent writes it; a guess that only decides what is tried first.
_BEGINNING = b'{"event":"data","data":{"task":'
_LARGEST_NS = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Observations of one task on one rank, in order; each column has one entry for each.

    `ns` is how long each took on its clock, `host_ns` on the host's; `n` items; `wait` seconds spent waiting for data, summed
    over those after warm-up that told it, None when none did. `end` is the unix time at which the first ended.
    """

    step: str
    task: str
    rank: int
    units: str
    end: float
    t0_ns: Sequence[int]
    ns: Sequence[int]
    host_ns: Sequence[int]
    n: Sequence[float]
    steps: Sequence[int]
    warmup: Sequence[bool]
    epoch_end: Sequence[bool]
    wait: float | None = None


Seen = Event | Observations
"""What a fold over a step's records is shown."""


class _Parts(msgspec.Struct, gc=False):
    wait: Annotated[float, msgspec.Meta(ge=0, le=LARGEST)] | None = None


class _Observation(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    task: str
    rate: Annotated[float, msgspec.Meta(gt=0)]
    elapsed: Annotated[float, msgspec.Meta(gt=1e-9, lt=_LARGEST_NS / 1e9)]
    n: Annotated[float, msgspec.Meta(ge=SMALLEST, le=LARGEST)]
    t0_ns: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    host_ns: Annotated[int, msgspec.Meta(gt=0, le=_LARGEST_NS)]
    time: Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
    units: str = ""
    rank: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    steps: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 1
    batch_id: int = 0
    clock: str = ""
    warmup: bool = False
    epoch_end: bool = False
    parts: _Parts | None = None


class _Record(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    event: Literal["data"]
    data: _Observation
    pipe: str | None
    t: float


class _Printed(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    event: Literal["line"]
    data: str
    pipe: Literal["stdout", "stderr"]
    t: float


_DECODER = msgspec.json.Decoder(_Record)
_PRINTED = msgspec.json.Decoder(_Printed)
_LINE = b'{"event":"line",'


def decode_lines(lines: bytes, step: str) -> Iterator[Seen]:
    """What whole lines say: plain observations in batches, all else event by event; see `Run.batches`."""
    batch = _batch(lines)
    if batch is not None:
        yield from _columns(batch, step)
        return
    plain: list[bytes] = []
    for line in lines.split(b"\n"):
        if line.startswith(_BEGINNING):
            plain.append(line)
            continue
        yield from _plain(plain, step)
        plain.clear()
        yield from _printed(line, step) if line.startswith(_LINE) else _one(line, step)
    yield from _plain(plain, step)


def _printed(line: bytes, step: str) -> Iterator[Event]:
    """A line of output, of which there may be millions; one of another shape as any other record."""
    try:
        found = _PRINTED.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        yield from _one(line, step)
    else:
        yield Line(step=step, t=found.t, text=found.data, pipe=found.pipe)


def _plain(lines: Sequence[bytes], step: str) -> Iterator[Seen]:
    """Lines that look like observations; where one of them is none, each is tried by itself."""
    if not lines:
        return
    batch = _batch(b"\n".join(lines))
    if batch is not None:
        yield from _columns(batch, step)
        return
    run: list[_Record] = []
    for line in lines:
        one = _batch(line)
        if one is not None:
            run += one
            continue
        yield from _columns(run, step)
        run = []
        yield from _one(line, step)
    yield from _columns(run, step)


def _one(line: bytes, step: str) -> Iterator[Event]:
    try:
        yield decode(line, step)
    except ValueError:
        if line.strip():
            yield Other(step=step, event="format_error", data=line.decode("utf-8", "backslashreplace"))


def _batch(lines: bytes) -> list[_Record] | None:
    """The records, if every one is a plain observation, with a time above zero and a place on the host's clock."""
    try:
        return _DECODER.decode_lines(lines)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _columns(records: Sequence[_Record], step: str) -> Iterator[Observations]:
    seen = [record.data for record in records]
    if not seen:
        return
    if len({one.task for one in seen}) == len({one.rank for one in seen}) == len({one.units for one in seen}) == 1:
        yield _of_one(seen, step)
        return
    groups: dict[tuple[str, int, str], list[_Observation]] = {}
    for one in seen:
        groups.setdefault((one.task, one.rank, one.units), []).append(one)
    for group in groups.values():
        yield _of_one(group, step)


def _of_one(group: Sequence[_Observation], step: str) -> Observations:
    first = group[0]
    host = [one.host_ns for one in group]
    is_host = first.clock == "host" and round(first.elapsed * 1e9) == host[0]
    parts = [one.parts for one in group if one.parts is not None and not one.warmup]
    waits = [one.wait for one in parts if one.wait is not None]
    return Observations(
        step=step,
        task=first.task,
        rank=first.rank,
        units=first.units,
        end=first.time,
        t0_ns=[one.t0_ns for one in group],
        ns=host if is_host else [round(one.elapsed * 1e9) for one in group],
        host_ns=host,
        n=[one.n for one in group],
        steps=[one.steps for one in group],
        warmup=[one.warmup for one in group],
        epoch_end=[one.epoch_end for one in group],
        wait=math.fsum(waits) if waits else None,
    )
