"""Reinforcement learning by CleanRL's single-file scripts, unmodified, from its wheel."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "cleanrl",
        "1.2.0",
        file="cleanrl-1.2.0-py3-none-any.whl",
        sha256="002f6dac6cd0efb5889cd9096a252da1b4bc98a8f52ccb1f47a7215c18b30369",
    ),
    module="cleanrl.{algorithm}",
    requirements="../_environments/rl",
    packages=("gym", "gymnasium", "numpy", "stable_baselines3", "tensorboard", "torch"),
    options={
        "algorithm": "ppo",
        # The mean return of the last episodes below which the training counts as wrong; null: none.
        "least_return": None,
    },
)
