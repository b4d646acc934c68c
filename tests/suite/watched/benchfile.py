"""A measured program beside which a monitor runs."""

from orchestrator.bench.api import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
