"""A program with a largest batch size."""

from milabench import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
