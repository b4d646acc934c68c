"""A server and a client that do not exist: plans only."""

from milabench import Benchmark

benchmark = Benchmark(script="serve.py", prepare=None, voirfile=None)
