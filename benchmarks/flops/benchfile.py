"""Matrix multiplication by precision, with a program of our own."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(script="main.py", requirements="../_environments/torch", packages=("numpy", "torch"))
