"""A program that behaves as its first argument says."""

from milabench import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None)
