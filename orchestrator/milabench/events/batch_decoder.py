"""Lines of records, many at a time -> events: the two kinds of which a run has millions are decoded in bulk.

Plain observations, those with the keys that protocol.md, section 4, lists and nothing else, become batches; plain lines
of output one event each. Any other line is decoded by itself (`wire.decode`). Order is kept within a task and rank, and
between all other events, but not between observations of different ranks.

Imports msgspec, which takes tens of milliseconds: import this module where records are read, not at start-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Literal, cast

import msgspec

from milabench.events.model import Data, Line, ObservationBatch, Other, StepEvent
from milabench.events.observation_columns import LARGEST_NS, batch_of, single_events
from milabench.events.values import LARGEST, SMALLEST
from milabench.events.wire import decode

# How bulk records begin, as our agent writes them; a guess, which only decides which decoder is tried first.
_DATA_PREFIX, _LINE_PREFIX = b'{"event":"data","data":{"task":', b'{"event":"line",'


# gc=False: the collector would walk millions of objects that hold no containers and form no cycles.
class _Parts(msgspec.Struct, gc=False):
    wait: Annotated[float, msgspec.Meta(ge=0, le=LARGEST)] | None = None


class _Observation(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    task: str
    rate: Annotated[float, msgspec.Meta(gt=0)]
    elapsed: Annotated[float, msgspec.Meta(gt=1e-9, lt=LARGEST_NS / 1e9)]
    n: Annotated[float, msgspec.Meta(ge=SMALLEST, le=LARGEST)]
    t0_ns: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    host_ns: Annotated[int, msgspec.Meta(gt=0, le=LARGEST_NS)]
    time: Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
    units: str = ""
    rank: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    steps: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 1
    batch_id: int = 0
    clock: str = ""
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


def decode_lines(lines: bytes, step: str) -> Iterator[StepEvent]:
    """Decode whole lines; see `Run.batches`."""
    # The whole piece at once where all of it is plain, as nearly always.
    records = _bulk_records(lines)
    if records is not None:
        yield from _events(records, step)
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
    """Decode lines that look like bulk records; where one of them is none, each is tried by itself."""
    if not lines:
        return
    records = _bulk_records(b"\n".join(lines))
    if records is not None:
        yield from _events(records, step)
        return
    records = []
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
    try:
        event = decode(line, step)
    except ValueError:
        if line.strip():
            yield Other(step=step, event="format_error", data=line.decode("utf-8", "backslashreplace"))
        return
    if not isinstance(event, Data):
        yield event
    elif (batch := batch_of(event)) is not None:
        yield batch
    else:
        yield from single_events(event)


def _bulk_records(lines: bytes) -> list[_BulkRecord] | None:
    """Return the records if every line is a bulk one; an observation takes time and has a place on the host's clock."""
    try:
        return _DECODER.decode_lines(lines)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
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


def _batch(observations: Sequence[_Observation], step: str) -> ObservationBatch:
    first = observations[0]
    host_ns = [observation.host_ns for observation in observations]
    is_host_clock = first.clock == "host" and round(first.elapsed * 1e9) == host_ns[0]
    parts = [
        observation.parts for observation in observations if observation.parts is not None and not observation.warmup
    ]
    waits = [part.wait for part in parts if part.wait is not None]
    return ObservationBatch(
        step=step,
        task=first.task,
        rank=first.rank,
        units=first.units,
        end=first.time,
        t0_ns=[observation.t0_ns for observation in observations],
        # The same list object means that both clocks are one; it is then kept once.
        ns=host_ns if is_host_clock else [round(observation.elapsed * 1e9) for observation in observations],
        host_ns=host_ns,
        n=[observation.n for observation in observations],
        steps=[observation.steps for observation in observations],
        warmup=[observation.warmup for observation in observations],
        epoch_end=[observation.epoch_end for observation in observations],
        wait=math.fsum(waits) if waits else None,
    )
