"""The state of a step's processes, seen from outside: as an agent sends it, and as it is kept next to the step.

The members limit a node's messages: ranges, lengths and depth. Imports msgspec: import it where evidence is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct, field

MOST_BYTES = 210_000
"""A node's evidence, with its agent's additions."""

Text = Annotated[str, Meta(max_length=300)]
Long = Annotated[str, Meta(max_length=20_000)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Rank = Annotated[int, Meta(ge=0, le=2**31)]
Frame = tuple[Text, Text, Annotated[int, Meta(ge=-1, le=2**31)]]
"""Function, file, line."""


class ThreadStack(Struct, kw_only=True):
    """A Python thread. Its innermost frame is the first."""

    name: Text = ""
    holds_gil: bool = False
    frames: Annotated[list[Frame], Meta(max_length=64)] = field(default_factory=list)


Threads = Annotated[list[ThreadStack], Meta(max_length=64)]


class LastCollective(Struct, kw_only=True):
    """The last entry of a flight recorder."""

    name: Text
    number: Count
    state: Text


class ProcessState(Struct, kw_only=True):
    """A process: its state as `/proc` has it (X: it ended meanwhile), and its threads, the main thread first, twice.

    `cpu_s` is its CPU time between the two looks. `rank` is None of a process that is no rank, such as a launcher or a loader.
    """

    pid: Annotated[int, Meta(ge=1, le=2**31)]
    parent: Count = 0
    name: Text = ""
    state: Text = ""
    wchan: Text = ""
    syscall: Count | None = None
    kernel: Annotated[list[Text], Meta(max_length=64)] = field(default_factory=list)
    threads: Count = 1
    cpu_s: Seconds | None = None
    rank: Rank | None = None
    local_rank: Rank | None = None
    world_size: Rank | None = None
    samples: Annotated[list[Threads], Meta(max_length=2)] = field(default_factory=list)
    collective: LastCollective | None = None


class DeviceState(Struct, kw_only=True):
    """The use of a device, and its processes. `lost` says why it cannot be reached."""

    index: Count = 0
    arch: Text = ""
    name: Text = ""
    memory_mib: Count | None = None
    memory_used_mib: Count | None = None
    lost: Text | None = None
    pids: Annotated[list[Count], Meta(max_length=10_000)] = field(default_factory=list)


class NodeEvidence(Struct, kw_only=True):
    """The state of a step's processes on a node.

    `progress` has rank, steps done and seconds since the last step, of each observed loop. `ras` is the report of NCCL's RAS
    on the job. `absent` lists missing evidence, and the setting that would allow it.
    """

    step: Annotated[str, Meta(max_length=20_000)] = ""
    time: Seconds = 0.0
    took_s: Seconds = 0.0
    processes: Annotated[list[ProcessState], Meta(max_length=256)] = field(default_factory=list)
    progress: Annotated[list[tuple[Rank, Count, Seconds]], Meta(max_length=10_000)] = field(default_factory=list)
    devices: Annotated[list[DeviceState], Meta(max_length=256)] | None = None
    ras: Long = ""
    absent: Annotated[list[Text], Meta(max_length=20)] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMember:
    """A step of a job that hangs: where it runs, the devices of its ranks in their order, and its evidence, where there is some.

    `is_lost`: its node cannot be reached.
    """

    step: str
    node: str
    devices: tuple[int, ...] = ()
    evidence: NodeEvidence | None = None
    is_lost: bool = False
