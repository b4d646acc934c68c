"""A measured program beside which a monitor runs."""

from milabench import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
