"""Records of columns as the agent writes them, decoded and checked in C: a run has thousands of them, with thousands of values.

Imports msgspec, which takes tens of milliseconds: import this module where records are read, not at start-up.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

import msgspec

from milabench.events.model import ObservationBatch
from milabench.events.observation_columns import LARGEST_NS, LATEST_NS, MOST_OBSERVATIONS, batch_of_plain, columns_of
from milabench.events.values import LARGEST_NUMBER, SMALLEST_NUMBER

COLUMNS_PREFIX = b'{"event":"data","data":{"observations":'
"""How these records begin, as our agent writes them. A guess, which only decides which decoder is tried first."""

_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Steps = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
_Offset = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]
_T0 = Annotated[int, msgspec.Meta(ge=0, le=LATEST_NS)]
_OwnNs = Annotated[int, msgspec.Meta(ge=2, le=LARGEST_NS)]
_PartNs = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
_Items = (
    Annotated[int, msgspec.Meta(ge=1, le=2**62)] | Annotated[float, msgspec.Meta(ge=SMALLEST_NUMBER, le=LARGEST_NUMBER)]
)


class _Data(TypedDict):
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


class _Record(TypedDict):
    event: Literal["data"]
    data: _Data


_DECODER = msgspec.json.Decoder(_Record)


def plain_batch(line: bytes, step: str) -> ObservationBatch | None:
    """Return the observations of a record of columns, all of which are plain. None where it may be another record.

    A record refused here may still be valid: `observation_columns.single_events` decides.
    """
    try:
        columns = columns_of(_DECODER.decode(line)["data"])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return None if columns is None or columns.t0_ns[-1] > LATEST_NS else batch_of_plain(columns, step)
