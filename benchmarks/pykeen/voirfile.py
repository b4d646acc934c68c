"""Triples of every batch and its loss, in PyKEEN's training loop."""

from __future__ import annotations

from benchmate import observe_loss, probes

CALLBACKS = "pykeen.training.callbacks.MultiTrainingCallback"


def instrument_pykeen(ov):
    # The end of a batch ends a step, after the optimizer's: what PyKEEN does between two epochs is part of the next step.
    probes.calls(ov, f"{CALLBACKS}.post_batch", units="triples/s", items=triples, when=is_training)
    probes.result(ov, "pykeen.training.training_loop.TrainingLoop._forward_pass", observe_loss)


def triples(_callbacks, *, batch, **_):
    """True triples; the corrupted ones that each is compared with come on top and are not counted."""
    return batch["positives"].shape[0]


def is_training(callbacks, **_):
    """Whether this is not the search for a batch size that fits the memory, which also runs batches."""
    return not any(getattr(callback, "only_size_probing", False) for callback in callbacks.callbacks)
