"""Samples of every batch that goes through TorchRec's pipeline, and its loss."""

from __future__ import annotations

from benchmate import probes


def instrument_dlrm(ov):
    probes.calls(
        ov,
        "__main__.train",
        units="samples/s",
        items=lambda _pipeline, _stream, size: size,
        loss=lambda loss: loss,
    )
