"""A program that behaves as its first argument says."""

from orchestrator.bench.api import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None)
