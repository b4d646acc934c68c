"""A Fourier neural operator trained by neuraloperator's own Trainer, started by a short program of our own."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    requirements="../_environments/science",
    packages=("neuraloperator", "torch"),
    # How many problems prepare.py solves, on a grid of so many points a side.
    options={"problems": 256, "points": 64},
)
