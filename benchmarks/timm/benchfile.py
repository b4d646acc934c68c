"""Image classifiers of timm, trained or applied by a program of our own around timm's model, loss, optimizer and loader."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    requirements="../_environments/vision",
    packages=("numpy", "pillow", "timm", "torch", "torchvision"),
)
