"""Words of every training step of Lightning, and the loss."""

from __future__ import annotations

from benchmate import probes


def instrument_lightning(ov):
    probes.lightning(ov, units="tokens/s", batch_size=lambda batch: batch[1].numel())
