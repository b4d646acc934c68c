"""A program with a largest batch size."""

from orchestrator.bench.api import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
