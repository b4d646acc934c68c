"""A program that uses an accelerator as it is told, for the checks of part 2."""

from milabench import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
