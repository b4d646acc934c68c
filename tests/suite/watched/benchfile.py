"""A measured program beside which a monitor runs."""

from milabench.bench.api import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
