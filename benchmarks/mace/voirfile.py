"""Atoms of every training step of MACE and its loss."""

from __future__ import annotations

from benchmate import probes


def instrument_mace(ov):
    probes.calls(
        ov,
        "mace.tools.train.take_step",
        units="atoms/s",
        items=lambda *_, batch, **__: batch.num_nodes,
        loss=lambda result: result[0],
    )
