"""The cells of an audit, and the order in which fresh processes measure them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
        """The cell as a person reads it."""
        return f"batch={self.batch} warmup={self.warmup} sync={self.sync}" + (" again" if self.again else "")


def make_cells(batches: Sequence[int], warmups: Sequence[int], syncs: Sequence[str]) -> tuple[Cell, ...]:
    """Return every combination, and for each batch its last cell once more."""
    cells = []
    for batch in batches:
        of_batch = [Cell(batch=batch, warmup=warmup, sync=sync) for warmup, sync in itertools.product(warmups, syncs)]
        cells += [*of_batch, replace(of_batch[-1], again=True)]
    return tuple(cells)


def shuffled_blocks(cells: Sequence[Cell], processes: int, seed: int | None) -> tuple[tuple[int, Cell], ...]:
    """Return every cell once in each of `processes` blocks; shuffled within a block with `seed`, None keeps the order."""
    generator = random.Random(seed)
    order = []
    for block in range(processes):
        of_block = list(cells)
        if seed is not None:
            generator.shuffle(of_block)
        order += [(block, cell) for cell in of_block]
    return tuple(order)
