"""Graph neural networks on molecules: PyTorch Geometric's models and loader, driven by a short program of our own."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    requirements="../_environments/science",
    packages=("numpy", "torch", "torch-geometric"),
    # How many molecules prepare.py makes; the suite gives each number a file of its own.
    options={"molecules": 2000},
)
