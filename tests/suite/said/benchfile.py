"""A rank that says who it is."""

from milabench import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
