"""Latents of every training step, each that of one image, and its loss."""

from __future__ import annotations

import os

from benchmate import fail, observe_loss, probes


def instrument_diffusers(ov):
    probes.iterable(ov, "__main__.batches", units="images/s")
    probes.result(ov, "__main__.forward", observe_loss)


def instrument_ranks(ov):
    """Fail ranks that train each for itself: without an accelerator accelerate does not tell them of each other by itself."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))

    def checking(backward):
        def checked(accelerator, *args, **kwargs):
            if accelerator.num_processes != ranks:
                fail("invalid", f"not distributed: of {ranks} ranks accelerate knows {accelerator.num_processes}")
            return backward(accelerator, *args, **kwargs)

        return checked

    if ranks > 1:
        probes.patch(ov, "accelerate.accelerator.Accelerator.backward", checking)
