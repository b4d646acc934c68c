"""Molecules of every batch of PyTorch Geometric's loader, and the loss."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_pyg(ov):
    probes.dataloader(ov, units="molecules/s", batch_size=lambda batch: batch.num_graphs)
    probes.result(ov, "torch.nn.functional.mse_loss", observe_loss)
