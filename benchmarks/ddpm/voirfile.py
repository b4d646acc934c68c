"""Images of every training step of the package's trainer, and its loss."""

from __future__ import annotations

from benchmate import observe_loss, probes

PACKAGE = "denoising_diffusion_pytorch.denoising_diffusion_pytorch"


def instrument_ddpm(ov):
    # The trainer takes a batch at the beginning of each step, from an endless generator over its loader.
    probes.iterable(ov, f"{PACKAGE}.cycle", units="images/s")
    probes.result(ov, f"{PACKAGE}.GaussianDiffusion.forward", observe_loss)


def instrument_ranks(ov):
    probes.accelerated_ranks(ov)
