"""A web server and its client."""

from milabench.bench.api import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
