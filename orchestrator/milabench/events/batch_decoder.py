"""Lines of records, many at a time -> events: the two kinds of which a run has millions are decoded in bulk.

Plain observations, those with the keys that protocol.md, section 4, lists and nothing else, become batches. Plain lines
of output become an event each. Any other line is decoded by itself (`wire.decode`). Order is kept within a task and rank, and
between all other events, but not between observations of different ranks.

Imports msgspec, which takes tens of milliseconds: import this module where records are read, not at start-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

import msgspec

from milabench.events.model import Line, ObservationBatch, StepEvent
from milabench.events.observation_columns import (
    LARGEST_NS,
    LATEST_NS,
    MOST_OBSERVATIONS,
    columns_of,
    events_of_line,
)
from milabench.events.values import LARGEST_NUMBER, SMALLEST_NUMBER

# How bulk records begin, as our agent writes them; a guess, which only decides which decoder is tried first.
_DATA_PREFIX, _LINE_PREFIX = b'{"event":"data","data":{"task":', b'{"event":"line",'
_LEAST_ALIKE = 32  # of fewer lines it does not pay to look at the first one before


_Wait = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_NUMBER)]
_T0 = Annotated[int, msgspec.Meta(ge=0, le=LATEST_NS)]


# gc=False: the collector would walk millions of objects that hold no containers and form no cycles.
class _Parts(msgspec.Struct, gc=False):
    wait: _Wait | None = None


class _Observation(msgspec.Struct, gc=False, forbid_unknown_fields=True, kw_only=True):
    # In the order in which the agent wrote the keys: that is the fastest to decode.
    task: str
    rate: Annotated[float, msgspec.Meta(gt=0)]
    units: str = ""
    time: Annotated[float, msgspec.Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
    elapsed: Annotated[float, msgspec.Meta(gt=1e-9, lt=LARGEST_NS / 1e9)]
    n: Annotated[float, msgspec.Meta(ge=SMALLEST_NUMBER, le=LARGEST_NUMBER)]
    batch_id: int = 0
    t0_ns: _T0
    host_ns: Annotated[int, msgspec.Meta(gt=0, le=LARGEST_NS)]
    clock: str = ""
    rank: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    steps: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 1
    warmup: bool = False
    epoch_end: bool = False
    parts: _Parts | None = None


class _DataRecord(msgspec.Struct, gc=False, forbid_unknown_fields=True, tag_field="event", tag="data"):
    data: _Observation
    pipe: str | None
    t: float


class _LineRecord(msgspec.Struct, gc=False, forbid_unknown_fields=True, tag_field="event", tag="line"):
    data: str
    pipe: Literal["stdout", "stderr"]
    t: float


_BulkRecord = _DataRecord | _LineRecord
_DECODER: msgspec.json.Decoder[_BulkRecord] = msgspec.json.Decoder(_BulkRecord)
_DATA_DECODER = msgspec.json.Decoder(_DataRecord)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def decode_lines(lines: bytes, step: str) -> Iterator[StepEvent]:
    """Decode whole lines. See `Run.batches`."""
    # The whole piece at once where all of it is plain, as nearly always.
    events = _alike(lines, step) or _bulk_events(lines, step)
    if events is not None:
        yield from events
        return
    bulk: list[bytes] = []
    for line in lines.split(b"\n"):
        if line.startswith(_DATA_PREFIX) or line.startswith(_LINE_PREFIX):  # noqa: PIE810 - a tuple takes twice as long
            bulk.append(line)
            continue
        yield from _decode_group(bulk, step)
        bulk = []
        yield from _decode_single(line, step)
    yield from _decode_group(bulk, step)


def _decode_group(lines: Sequence[bytes], step: str) -> Iterator[StepEvent]:
    """Decode lines that look like bulk records. Where any is not, each is tried by itself."""
    if not lines:
        return
    whole = b"\n".join(lines)
    events = (_alike(whole, step) if len(lines) >= _LEAST_ALIKE else None) or _bulk_events(whole, step)
    if events is not None:
        yield from events
        return
    records: list[_BulkRecord] = []
    for line in lines:
        record = _bulk_records(line)
        if record is not None:
            records += record
            continue
        yield from _events(records, step)
        records = []
        yield from _decode_single(line, step)
    yield from _events(records, step)


def _decode_single(line: bytes, step: str) -> Iterator[StepEvent]:
    if line.startswith(COLUMNS_PREFIX) and (plain := plain_batch(line, step)) is not None:
        yield plain
    else:
        yield from events_of_line(line, step)


def _alike(lines: bytes, step: str) -> list[ObservationBatch] | None:
    """Return the observations of lines that differ in nothing but their times and waits. None where that is not so.

    Their common part is then neither decoded into an object for each, nor checked again: it takes half the time.
    """
    try:
        first = _DATA_DECODER.decode(lines[: lines.find(b"\n") + 1 or None]).data
        if first.warmup or first.epoch_end or not (first.n.is_integer() and first.n <= LARGEST_NS):
            return None
        has_wait = first.parts is not None and first.parts.wait is not None
        common = {name: getattr(first, name) for name in ("task", "units", "clock", "rank", "steps")}
        records = _decoder_of(has_wait=has_wait, n=int(first.n), **common).decode_lines(lines)
    except _UNREADABLE:
        return None
    return [_batch([record.data for record in records], step, common=first)]


@lru_cache(maxsize=64)
def _decoder_of(*, has_wait: bool, **common: str | int) -> msgspec.json.Decoder[Any]:
    """Return the decoder of observations that have all this in common. It refuses any other line."""
    literal: Any = Literal
    fields: list[Any] = []
    for field in msgspec.structs.fields(_Observation):
        value = common.get(field.name)
        if value is not None:  # it may be left out where it is the default
            fields.append((field.name, literal[value], value if value == field.default else msgspec.NODEFAULT))
        elif field.name not in ("warmup", "epoch_end", "parts"):
            fields.append((field.name, field.type, field.default))
    if has_wait:
        fields.append(("parts", msgspec.defstruct("Parts", [("wait", _Wait)], gc=False)))
    observation = msgspec.defstruct("Observation", fields, gc=False, forbid_unknown_fields=True, kw_only=True)
    return msgspec.json.Decoder(msgspec.defstruct("Record", [("data", observation)], bases=(_DataRecord,), gc=False))


def _own_clock_ns(observations: Sequence[_Observation], host_ns: list[int]) -> list[int]:
    """Return the durations on the observations' own clock: the list of those on the host's clock where that is the same."""
    # The same list object means that both clocks are one; it is then kept once.
    is_host_clock = observations[0].clock == "host" and round(observations[0].elapsed * 1e9) == host_ns[0]
    return host_ns if is_host_clock else [round(observation.elapsed * 1e9) for observation in observations]


def _bulk_events(lines: bytes, step: str) -> Iterator[StepEvent] | None:
    """Return the events of lines that are all bulk records. None where any is not."""
    records = _bulk_records(lines)
    return None if records is None else _events(records, step)


def _bulk_records(lines: bytes) -> list[_BulkRecord] | None:
    """Return the records if every line is a bulk record. An observation takes time and has a place on the host's clock."""
    try:
        return _DECODER.decode_lines(lines)
    except _UNREADABLE:
        return None


def _events(records: Sequence[_BulkRecord], step: str) -> Iterator[StepEvent]:
    for kind, group in groupby(records, type):
        if kind is _DataRecord:
            yield from _batches([record.data for record in cast("Iterable[_DataRecord]", group)], step)
        else:
            for record in cast("Iterable[_LineRecord]", group):
                yield Line(step=step, t=record.t, text=record.data, pipe=record.pipe)


def _batches(observations: Sequence[_Observation], step: str) -> Iterator[ObservationBatch]:
    """Group observations by task, rank and units."""
    if len({(each.task, each.rank, each.units) for each in observations}) == 1:
        yield _batch(observations, step)
        return
    groups: dict[tuple[str, int, str], list[_Observation]] = {}
    for observation in observations:
        groups.setdefault((observation.task, observation.rank, observation.units), []).append(observation)
    for group in groups.values():
        yield _batch(group, step)


def _batch(observations: Sequence[Any], step: str, common: _Observation | None = None) -> ObservationBatch:
    """Return observations as a batch. `common` has the values of all of them but for their times and waits."""
    first, count = common or observations[0], len(observations)
    host_ns = [observation.host_ns for observation in observations]
    if common is not None:
        n, steps = [common.n] * count, [common.steps] * count
        warmup = epoch_end = [False] * count
        has_wait = common.parts is not None and common.parts.wait is not None
        waits = [observation.parts.wait for observation in observations] if has_wait else []
    else:
        n, steps = [each.n for each in observations], [each.steps for each in observations]
        warmup, epoch_end = [each.warmup for each in observations], [each.epoch_end for each in observations]
        parts = [each.parts for each in observations if each.parts is not None and not each.warmup]
        waits = [part.wait for part in parts if part.wait is not None]
    return ObservationBatch(
        step=step,
        task=first.task,
        rank=first.rank,
        units=first.units,
        end=first.time,
        t0_ns=[observation.t0_ns for observation in observations],
        ns=_own_clock_ns(observations, host_ns),
        host_ns=host_ns,
        n=n,
        steps=steps,
        warmup=warmup,
        epoch_end=epoch_end,
        wait=math.fsum(waits) if waits else None,
    )


# --- records of columns: a run has thousands of them, with thousands of values, decoded and checked in C -------------------

COLUMNS_PREFIX = b'{"event":"data","data":{"observations":'
"""How these records begin, as our agent writes them. A guess, which only decides which decoder is tried first."""

_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Steps = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
_Offset = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]
_OwnNs = Annotated[int, msgspec.Meta(ge=2, le=LARGEST_NS)]
_PartNs = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
_Items = (
    Annotated[int, msgspec.Meta(ge=1, le=2**62)] | Annotated[float, msgspec.Meta(ge=SMALLEST_NUMBER, le=LARGEST_NUMBER)]
)


class _Columns(TypedDict):
    observations: Annotated[int, msgspec.Meta(ge=1, le=MOST_OBSERVATIONS)]
    rank: NotRequired[_Whole | None]
    task: str
    units: str
    unix_minus_mono_ns: _Offset
    clock: str
    warmup: NotRequired[bool]
    batch_id: _Whole | list[_Whole]
    t0_ns: _T0 | list[_T0]
    host_ns: _OwnNs | list[_OwnNs]
    device_ns: NotRequired[_OwnNs | list[_OwnNs]]
    n: _Items | list[_Items]
    steps: NotRequired[_Steps | list[_Steps]]
    wait_ns: NotRequired[list[_PartNs | None]]
    forward_ns: NotRequired[list[_PartNs | None]]
    backward_ns: NotRequired[list[_PartNs | None]]
    optimizer_ns: NotRequired[list[_PartNs | None]]
    epoch_end: NotRequired[list[_Whole]]


class _ColumnsRecord(TypedDict):
    event: Literal["data"]
    data: _Columns


_COLUMNS_DECODER = msgspec.json.Decoder(_ColumnsRecord)


def plain_batch(line: bytes, step: str) -> ObservationBatch | None:
    """Return the observations of a record of columns, all of which are plain. None where it may be another record.

    A record refused here may still be valid: `observation_columns.single_events` decides.
    """
    try:
        columns = columns_of(_COLUMNS_DECODER.decode(line)["data"], step)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return None if columns is None or columns.batch.t0_ns[-1] > LATEST_NS else columns.batch
