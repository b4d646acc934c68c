"""A program that behaves as its first argument says."""

from milabench.bench.api import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None)
