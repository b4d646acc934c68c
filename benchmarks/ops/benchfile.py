"""Operator micro-benchmarks: the inputs of a configuration in JSON, or in the suite itself, timed one by one."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    requirements="../_environments/torch",
    packages=("numpy", "torch"),
    # The program measures itself: an operator has no training loop for the runner to look at.
    voirfile=None,
    options={
        "ops": None,
        "modes": "hot",
        "backward": False,
        "data": "normal",
        "precision": None,
        "device": None,
        "warmup": None,
        "iteration": None,
    },
)
