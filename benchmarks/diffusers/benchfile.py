"""The networks of latent diffusion, of diffusers' shapes, trained by a program of our own on random latents."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    prepare=None,
    requirements="../_environments/vision",
    packages=("accelerate", "diffusers", "torch", "transformers"),
)
