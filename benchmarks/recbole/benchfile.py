"""Recommenders of RecBole, trained by its own trainer on the data that it brings along."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    requirements="../_environments/recommendation",
    prepare=None,
)
