"""Registered cases, each measured in a process of its own; main.py takes the place of any program that calls benchmate.cases."""

from __future__ import annotations

from milabench import Benchmark

# No runner and no voirfile: the program supervises its cases and tells the sink itself what came of them.
benchmark = Benchmark(
    script="main.py", voirfile=None, prepare=None, requirements="../_environments/torch", packages=("numpy", "torch")
)
