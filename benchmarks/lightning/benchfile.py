"""The small language model of Lightning's demonstrations, trained by its own command line."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    requirements="../_environments/lightning",
    packages=("jsonargparse", "lightning", "requests", "torch"),
    cwd="data",  # the demonstration reads ./data/wikitext-2.txt
)
