"""Interactions of every batch in RecBole's training loop, and its loss."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_recbole(ov):
    # RecBole reads the loss of each batch as it goes, so a device has finished a step when the next one begins.
    probes.argument(
        ov, "recbole.trainer.trainer.Trainer._train_epoch", "train_data", units="interactions/s", batch_size=len
    )
    probes.patch(ov, "recbole.trainer.trainer.Trainer._check_nan", hearing)


def hearing(check):
    def check_nan(trainer, loss):
        observe_loss(loss)
        return check(trainer, loss)

    return check_nan
