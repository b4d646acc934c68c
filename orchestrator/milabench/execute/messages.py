"""The messages of a node: a declaration for each, with its ranges, lengths and depth. Anything else is refused.

Imports msgspec, which takes tens of milliseconds: import this module where a node is talked to, not at start-up.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar

import msgspec
from msgspec import Meta, Struct

from milabench.events.model import Why
from milabench.events.wire import is_too_deep
from milabench.records.hang_evidence import NodeEvidence

MOST_FRAME_BYTES = (1 << 26) + (1 << 20)  # the longest record that an agent takes, with what it adds
MOST_MESSAGE_BYTES = 1 << 17  # of a frame that holds no records
MOST_DEPTH = 16
LATEST_S = 4102444800.0  # the year 2100, in unix seconds
MOST_CPUS = 1 << 16
MOST_DEVICES = 256

Word = Annotated[str, Meta(max_length=500)]
Text = Annotated[str, Meta(max_length=20_000)]
Pid = Annotated[int, Meta(ge=1, le=2**31)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Number = Annotated[float, Meta(ge=0, le=1e50)]
Time = Annotated[float, Meta(ge=0, le=LATEST_S)]
Nanoseconds = Annotated[int, Meta(ge=-1, le=2**62)]
# Begin, end, items, and whether it was the warm-up: the agent says that as 0 or 1.
Span = tuple[Nanoseconds, Nanoseconds, Number, bool | Annotated[int, Meta(ge=0, le=1)]]


class InvalidMessage(Exception):
    """A malformed message. The text says which message, and which part."""


class Sums(TypedDict, total=False):
    """The sums of the observations in a frame."""

    task: Word | None
    units: Word | None
    rank: Annotated[int, Meta(ge=0, le=2**31)]
    progress: tuple[Count, Count]
    spans: Annotated[list[Span], Meta(max_length=10_000)]


class Header(Struct):
    """The line before the payload of a frame, which has `n` bytes. `last` may have any shape, see `header_sums`."""

    k: Word
    n: Annotated[int, Meta(ge=0, le=MOST_FRAME_BYTES)]
    step: Text = ""
    last: Any = None


class Hello(TypedDict, total=False):
    """The first frame of an agent."""

    pid: Pid
    folder: Text
    oom_kills: Count | None


class Held(TypedDict, total=False):
    """Who holds a device. Any value may be of any type, because anybody may have written the file of a lock."""

    name: Any
    run: Any
    pid: Any
    host: Any
    user: Any
    since: Any


Holders = Annotated[list[Held], Meta(max_length=MOST_DEVICES)]


class Reply(TypedDict, total=False):
    """The answer to a request, of any verb."""

    id: Count | None
    ok: bool
    error: Text | None
    pid: Pid | None
    pgid: Pid | None
    pid_start: Count | None
    port: Annotated[int, Meta(ge=1, le=65535)]
    holders: Holders
    cpu_s: Number
    left: Text | None
    t: Time


class WaitingFor(TypedDict):
    """Who holds the lock that a request waits for."""

    id: Count
    holders: Holders


class StepEnd(TypedDict):
    """How a step has ended."""

    outcome: Literal["passed", "failed", "cancelled"]
    why: Why | None
    detail: Text | None
    reasons: Annotated[list[Word], Meta(max_length=20)]


class LeftProcess(TypedDict):
    """A process, or container, that a run has left."""

    pid: Annotated[int, Meta(ge=0, le=2**31)]
    command: Text


Processes = Annotated[list[LeftProcess], Meta(max_length=20_000)]


class Left(TypedDict):
    """The leftovers of a run."""

    left: Processes


class Swept(TypedDict):
    """The processes that a sweep has ended, and those that it has not."""

    ended: Processes
    left: Processes
    oom_kills: Count | None


class Listening(TypedDict):
    """The far end of a link that is measured."""

    port: Annotated[int, Meta(ge=1, le=65535)]


class LinkSpeed(TypedDict, total=False):
    """A measured link."""

    round_trip_s: Number
    bytes_per_s: Number
    error: Text


class Space(TypedDict):
    """Of a file system."""

    free_mib: Count
    total_mib: Count


class Cpu(TypedDict, total=False):
    """The processor."""

    model: Word | None
    count: Annotated[int, Meta(ge=1, le=MOST_CPUS)]
    affinity: Annotated[int, Meta(ge=1, le=MOST_CPUS)]
    online: Annotated[int, Meta(ge=1, le=MOST_CPUS)] | None
    quota: Number | None
    cores: Annotated[int, Meta(ge=1, le=MOST_CPUS)] | None
    sockets: Annotated[int, Meta(ge=1, le=MOST_CPUS)] | None
    virtual: bool


class DeviceProcess(Struct):
    """A process that uses a device."""

    pid: Pid


class DeviceFacts(Struct):
    """The used facts of a device. The rest is kept as it is, for each vendor has other words."""

    index: Annotated[int, Meta(ge=0, le=2**16)]
    arch: Word
    uuid: Word | None = None
    name: Word | None = None
    memory_mib: Annotated[int, Meta(ge=0, le=2**40)] | None = None
    processes: Annotated[list[DeviceProcess], Meta(max_length=10_000)] | None = None


Devices = Annotated[list[Annotated[dict[Word, Any], Meta(max_length=200)]], Meta(max_length=MOST_DEVICES)]


class HostFacts(TypedDict, total=False):
    """The facts of a machine."""

    hostname: Word
    addresses: Annotated[list[Word], Meta(max_length=1000)]
    boot: Word
    lock_folder: Text
    user: Word
    os: Word
    kernel: Word
    machine: Word
    python: Word
    time: Time
    cpu: Cpu
    memory_mib: Annotated[int, Meta(ge=0, le=2**40)] | None
    memory_available_mib: Annotated[int, Meta(ge=0, le=2**40)] | None
    shm_mib: Space | None
    load: Annotated[list[Number], Meta(max_length=3)]
    runnable: Count | None
    disk: Annotated[dict[Text, Space | None], Meta(max_length=100)]
    devices: Devices
    lost: Devices
    hidden_by: Annotated[dict[Word, Text], Meta(max_length=100)]
    driver: Word | None
    cuda: Word | None
    absent: Annotated[dict[Word, Text], Meta(max_length=1000)]


class FilesAnswer(TypedDict, total=False):
    """The answer of a file server, to any question."""

    ok: bool
    error: Text
    facts: HostFacts
    found: Annotated[list[bool], Meta(max_length=100_000)]
    need: list[tuple[Count, Count]]


_M = TypeVar("_M")


class Declared(Generic[_M]):
    """A message as its type declares it. `name` is the message's for a person."""

    def __init__(self, name: str, type_: type[_M]) -> None:
        self._name = name
        self._type = type_
        self._decoder = msgspec.json.Decoder(type_)

    def read(self, payload: bytes) -> _M:
        """Return the message. Raises InvalidMessage with the error and its place."""
        try:
            return self._decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidMessage(f"its message '{self._name}' cannot be read: {error}") from None

    def _decode(self, payload: bytes) -> _M:
        if is_too_deep(payload, MOST_DEPTH):
            raise ValueError(f"it is nested deeper than {MOST_DEPTH}")
        try:
            return self._decoder.decode(payload)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Half of a surrogate pair, in the name of a file or what a program says, is no JSON to msgspec alone.
            # What is no number to JSON, such as NaN, is None.
            return msgspec.convert(json.loads(payload, parse_constant=lambda _: None), self._type)


def header_sums(header: Header) -> Sums:
    """Return the sums in the header of a frame. Empty where they are of another shape: the program has made them."""
    try:
        return msgspec.convert(header.last or {}, Sums)
    except msgspec.ValidationError:
        return {}


def require_devices(facts: HostFacts) -> None:
    """Raise InvalidMessage for a device with a malformed used fact."""
    try:
        msgspec.convert(facts.get("devices", []), list[DeviceFacts])
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"its facts cannot be read: devices: {error}") from None


HEADER = Declared("header", Header)
HELLO = Declared("hello", Hello)
REPLY = Declared("reply", Reply)
WAITING = Declared("waiting", WaitingFor)
ENDED = Declared("ended", StepEnd)
EVIDENCE = Declared("evidence", NodeEvidence)
LEFT = Declared("left", Left)
SWEPT = Declared("sweep", Swept)
LISTENING = Declared("link", Listening)
LINK = Declared("link", LinkSpeed)
FILES = Declared("files", FilesAnswer)
