"""The timing experiment: how warm-up, synchronisation and the clock change the time that a call of a model seems to take."""

from __future__ import annotations

from milabench import Benchmark

# No runner and no voirfile: the program measures in processes of its own and tells the sink itself.
benchmark = Benchmark(
    script="main.py", voirfile=None, prepare=None, requirements="../_environments/torch", packages=("numpy", "torch")
)
