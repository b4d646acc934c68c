"""A denoising diffusion model of images: the trainer of denoising-diffusion-pytorch, started by a program of our own."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    requirements="../_environments/vision",
    packages=("denoising-diffusion-pytorch", "pillow", "torch", "torchvision"),
)
