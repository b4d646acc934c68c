"""A rank that says who it is."""

from orchestrator.bench.api import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
