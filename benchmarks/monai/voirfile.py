"""Volumes of every iteration of MONAI's trainer, and its loss."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_monai(ov):
    probes.argument(ov, "ignite.engine.engine.Engine.run", "data", units="volumes/s", batch_size="image")
    iteration = "monai.engines.trainer.SupervisedTrainer._iteration"
    probes.result(ov, iteration, lambda output: observe_loss(output["loss"]))
