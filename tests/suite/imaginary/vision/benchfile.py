"""A program that does not exist: plans only."""

from milabench import Benchmark

benchmark = Benchmark(script="main.py", prepare=None)
