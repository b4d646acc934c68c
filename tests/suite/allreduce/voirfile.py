"""Samples of every training step, of each rank."""

from __future__ import annotations

from benchmate import probes


def instrument_samples(ov):
    yield ov.phases.load_script
    probes.loader(ov, "//make_loader() as loader", units="samples/s")
