"""Atoms of every training step of NequIP, which Lightning's Trainer makes, and the loss."""

from __future__ import annotations

from benchmate import probes


def instrument_nequip(ov):
    probes.lightning(ov, units="atoms/s", batch_size=lambda batch: batch["pos"].shape[0])
