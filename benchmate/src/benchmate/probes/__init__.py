"""The probes of a voirfile: each places an observer in a program that knows nothing of it, and must fire.

Every function takes the overseer first and may be called in any phase before the script runs.
"""

from __future__ import annotations

from benchmate.probes.framework_probes import (
    accelerated_ranks,
    backward,
    dataloader,
    lightning,
    optimizer_step,
    parts,
    trainer,
)
from benchmate.probes.patch_probes import argument, batches, calls, iterable, loop, patch, pause, result
from benchmate.probes.selector_probes import criterion, loader, loss, replace, value

__all__ = [
    "accelerated_ranks",
    "argument",
    "backward",
    "batches",
    "calls",
    "criterion",
    "dataloader",
    "iterable",
    "lightning",
    "loader",
    "loop",
    "loss",
    "optimizer_step",
    "parts",
    "patch",
    "pause",
    "replace",
    "result",
    "trainer",
    "value",
]
