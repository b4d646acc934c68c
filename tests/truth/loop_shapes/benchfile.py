"""Shapes of loop, each with a clock and a count of its own: main.py runs the one that has the benchmark's name."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(script="main.py", cwd="data", prepare=None)
