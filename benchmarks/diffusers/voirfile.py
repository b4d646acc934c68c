"""Latents of every training step, each that of one image, and its loss."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_diffusers(ov):
    probes.iterable(ov, "__main__.batches", units="images/s")
    probes.result(ov, "__main__.forward", observe_loss)


def instrument_ranks(ov):
    probes.accelerated_ranks(ov)
