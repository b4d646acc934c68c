"""A training of three ranks, one of which has a wrong gradient at one step."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(script="main.py", prepare=None)
