"""An old name of benchmate.ops."""

from __future__ import annotations

from benchmate.ops import Benchmark, make_default_benchmark

__all__ = ["Benchmark", "make_default_benchmark"]
