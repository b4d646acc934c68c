"""Images of every training step of Ultralytics' trainer, and its loss; validation and checkpoints are left out."""

from __future__ import annotations

import functools
import sys

from benchmate import fail, observe_loss, probes

TRAINER = "ultralytics.engine.trainer.BaseTrainer"


def instrument_yolo(ov):
    probes.iterable(
        ov,
        "ultralytics.data.build.InfiniteDataLoader.__iter__",
        units="images/s",
        batch_size="img",
        task=lambda *_: "train" if sys.modules["torch"].is_grad_enabled() else "validation",
    )
    probes.patch(ov, f"{TRAINER}.run_callbacks", observing_losses)
    probes.patch(ov, f"{TRAINER}._build_train_pipeline", refusing_another_batch_size)
    probes.pause(ov, f"{TRAINER}.validate", name="validation")
    probes.pause(ov, f"{TRAINER}.save_model", name="checkpoint")


def observing_losses(run_callbacks):
    @functools.wraps(run_callbacks)
    def observed(trainer, event):
        if event == "on_train_batch_end":
            observe_loss(trainer.loss)
        return run_callbacks(trainer, event)

    return observed


def refusing_another_batch_size(build):
    """Where memory is short the trainer halves its batch and begins again: that is another benchmark."""
    built = []

    @functools.wraps(build)
    def once(trainer):
        built.append(trainer.batch_size)
        if len(built) > 1:
            fail("out-of-memory", f"batch of {built[0]}: does not fit; the program went on with {built[-1]}")
        return build(trainer)

    return once
