"""Images of every training step of timm's program, decoding and augmentation included, and its loss."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_timm_train(ov):
    probes.argument(ov, "__main__.train_one_epoch", "loader", units="images/s")
    probes.result(ov, "timm.task.classification.ClassificationTask.forward", lambda done: observe_loss(done["loss"]))
    probes.pause(ov, "__main__.validate", name="validation")
