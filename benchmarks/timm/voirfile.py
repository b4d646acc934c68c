"""Images of every batch and its loss, in training and in inference, whose first answers are compared with float32's."""

from __future__ import annotations

import functools

from benchmate import fail, metric, observe_loss, probes

CHECKED_IMAGES = 4
LARGEST_ERROR = 0.05  # of the norm of the answers; bf16 has three digits and the networks some fifty layers


def instrument_timm(ov):
    # The end of one iteration is the request of the next batch: data wait, forward, backward and optimizer are the step.
    probes.iterable(ov, "__main__.batches", units="images/s", task=lambda args, *_: args.mode, stop=True)
    probes.patch(ov, "timm.task.classification.ClassificationTask.forward", observing)


def observing(forward):
    checked = False

    @functools.wraps(forward)
    def observed(task, images, labels):
        nonlocal checked
        done = forward(task, images, labels)
        observe_loss(done["loss"], "train" if task.training else "inference")
        if not checked and not task.training:
            check(task, images, done["output"])
        checked = True
        return done

    return observed


def check(task, images, answers):
    """Fail unless the answers to some images are those of the same network in float32."""
    import torch

    some = images[:CHECKED_IMAGES].float()
    with torch.autocast(images.device.type, enabled=False):
        expected = task.get_eval_model()(some)
    error = ((answers[:CHECKED_IMAGES].float() - expected).norm() / expected.norm()).item()
    metric("output_error", error, units="fraction", direction="lower")
    if not error <= LARGEST_ERROR:
        fail("invalid", f"the answers differ from float32's by {error:.1%} of their norm (at most {LARGEST_ERROR:.0%})")
