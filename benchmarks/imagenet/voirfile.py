"""Images of every training step of PyTorch's example, and its loss; validation is left out."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_imagenet(ov):
    probes.argument(ov, "__main__.train", "train_loader", units="images/s")
    probes.result(ov, "torch.nn.modules.loss.CrossEntropyLoss.forward", observe_loss)
    probes.pause(ov, "__main__.validate", name="validation")
