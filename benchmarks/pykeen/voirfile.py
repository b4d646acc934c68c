"""Triples of every batch and its loss, in PyKEEN's training loop."""

from __future__ import annotations

from benchmate import observe_loss, probes

LOOP = "pykeen.training.training_loop.TrainingLoop"


def instrument_pykeen(ov):
    probes.argument(
        ov,
        f"{LOOP}._train_epoch",
        "batches",
        units="triples/s",
        batch_size=triples,
        # The search for a batch size that fits the memory also runs epochs.
        when=lambda *_, only_size_probing=False, **__: not only_size_probing,
    )
    probes.result(ov, f"{LOOP}._forward_pass", observe_loss)


def triples(batch):
    """True triples; the corrupted ones that each is compared with come on top and are not counted."""
    return batch["positives"].shape[0]
