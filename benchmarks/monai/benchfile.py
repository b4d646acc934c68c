"""A three-dimensional U-Net that segments volumes: the trainer of MONAI, started by a program of our own."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    prepare=None,
    requirements="../_environments/vision",
    packages=("monai", "numpy", "pytorch-ignite", "torch"),
)
