"""A program whose undisturbed rate is known: test_disturbed.py disturbs it."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, cwd="data", prepare=None)
