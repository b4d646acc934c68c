"""A small model trained by several processes on several nodes, which exchange gradients after every step."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(script="main.py", prepare=None)
