"""Pairs of image and caption of every training step, decoding and tokenising included, and its loss."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_open_clip(ov):
    probes.dataloader(ov, units="pairs/s")
    probes.result(ov, "open_clip.loss.ClipLoss.forward", lambda losses: observe_loss(losses["contrastive_loss"]))
