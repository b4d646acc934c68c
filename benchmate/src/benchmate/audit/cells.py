"""What an audit tries: its cells, and the order in which fresh processes measure them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

SYNCS = ("none", "each", "end")
CLOCKS = ("wall", "event")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One way to time a call: `batch` items in a call, `warmup` calls before, and when the host waits for the device.

    `sync` is `each` (after every call), `end` (once, after the last) or `none` (never before the clock is read). `again`
    marks the cell that is measured twice in every block, so that a difference between equals is known.
    """

    batch: int
    warmup: int
    sync: str
    again: bool = False

    @property
    def name(self) -> str:
        """How a person reads it."""
        return f"batch={self.batch} warmup={self.warmup} sync={self.sync}" + (" again" if self.again else "")

    def as_dict(self) -> dict[str, Any]:
        """For the child process and the records."""
        return asdict(self)


def make_cells(batches: Sequence[int], warmups: Sequence[int], syncs: Sequence[str]) -> tuple[Cell, ...]:
    """Every combination, and for each batch its last cell once more."""
    found = []
    for batch in batches:
        of_batch = [Cell(batch=batch, warmup=warmup, sync=sync) for warmup, sync in itertools.product(warmups, syncs)]
        last = of_batch[-1]
        found += [*of_batch, Cell(batch=batch, warmup=last.warmup, sync=last.sync, again=True)]
    return tuple(found)


def shuffled_blocks(cells: Sequence[Cell], processes: int, seed: int | None) -> tuple[tuple[int, Cell], ...]:
    """Every cell once in each of `processes` blocks; shuffled within each block with `seed`, None keeps the order."""
    chance = random.Random(seed)
    order = []
    for block in range(processes):
        of_block = list(cells)
        if seed is not None:
            chance.shuffle(of_block)
        order += [(block, cell) for cell in of_block]
    return tuple(order)
