"""A web server and its client."""

from orchestrator.bench.api import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
