"""Samples of every batch of neuraloperator's Trainer, and its loss, the relative error of a sample."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_fno(ov):
    probes.dataloader(ov, units="samples/s", batch_size=lambda batch: batch["x"].shape[0])
    probes.patch(ov, "neuralop.training.trainer.Trainer.train_one_batch", observing_loss)


def observing_loss(train_one_batch):
    def observed(trainer, index, sample, training_loss):
        samples = sample["x"].shape[0]
        loss = train_one_batch(trainer, index, sample, training_loss)
        observe_loss(loss.detach() / samples)
        return loss

    return observed
