"""When a rank entered the collectives of its last steps, as benchmate records it. Imports msgspec: import it where it is read."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Number = Annotated[int, Meta(ge=0, le=2**62)]
Column = Annotated[list[Number], Meta(max_length=100_000)]


class RankCollectives(Struct, kw_only=True):
    """The operations of one process group, column by column: the number in the group, the step, and microseconds.

    `entered_us` is the time of entry, since `t0_ns` (unix). `lasted_us` is how long the device was in the operation, until
    all had entered and it was done. A step takes `step_us` on average.
    """

    group: str
    rank: Number
    t0_ns: Number
    step_us: Number
    number: Column
    step: Column
    entered_us: Column = []
    lasted_us: Column = []
