"""A small convolutional network on scikit-learn's handwritten digits, with a program of our own."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    requirements="../_environments/torch",
    packages=(
        "numpy",
        "scikit-learn",
        "torch",
    ),
)
