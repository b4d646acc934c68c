"""Reinforcement learning by the training command of RL Baselines3 Zoo, unmodified, from its wheel."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "rl_zoo3",
        "2.9.2",
        file="rl_zoo3-2.9.2-py3-none-any.whl",
        sha256="dcacaf62bec49a98160189d498517a7a70c106f6e7d6e6a9f3a159653dc99a05",
    ),
    module="rl_zoo3.train",
    requirements="../_environments/rl",
    # The mean return of the last episodes below which the training counts as wrong; null: none.
    options={"least_return": None},
)
