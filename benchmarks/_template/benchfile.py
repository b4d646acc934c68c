"""@NAME@: our own main.py, run with our runner. `source=PyPI(...)` or `Git(...)` would fetch somebody else's program instead."""

from milabench import Benchmark

benchmark = Benchmark(script="main.py")
