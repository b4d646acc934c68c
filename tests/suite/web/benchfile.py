"""A web server and its client."""

from milabench import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
