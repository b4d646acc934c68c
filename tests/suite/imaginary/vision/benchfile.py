"""A program that does not exist: plans only."""

from milabench.bench.api import Benchmark

benchmark = Benchmark(script="main.py", prepare=None)
