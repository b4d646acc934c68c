"""A program that does not exist: plans only."""

from orchestrator.bench.api import Benchmark

benchmark = Benchmark(script="main.py", prepare=None)
