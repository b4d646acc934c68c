"""Tokens and the loss of every batch of LitGPT's pretraining loop."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_litgpt(ov):
    # `for train_data in train_iterator` in fit(): a batch holds, for each window, the token after its last one too.
    probes.iterable(
        ov,
        "litgpt.pretrain.CycleIterator",
        units="tokens/s",
        batch_size=lambda batch: batch.shape[0] * (batch.shape[1] - 1),
    )
    probes.patch(ov, "litgpt.pretrain.chunked_cross_entropy", hearing)


def hearing(cross_entropy):
    def chunked_cross_entropy(*args, **kwargs):
        loss = cross_entropy(*args, **kwargs)
        # Neither validation nor the count of operations, for which the loop runs the model once without numbers.
        if loss.requires_grad and not loss.is_meta:
            observe_loss(loss)
        return loss

    return chunked_cross_entropy
