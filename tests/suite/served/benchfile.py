"""A server of completions, well or not, whose client is that of a sweep."""

from milabench import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
