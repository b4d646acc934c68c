"""Registered cases: functions and classes that are measured in sequence, each in a separate process.

    import benchmate.cases as benchmark

    @benchmark.register(name="Sum/{size}", size=[1000, 1000000])
    def bench_sum(size):
        sum(range(size))

    if __name__ == "__main__":
        benchmark.main()

Importing this package imports the standard library only. Torch and the vendors' libraries are asked where a case uses them.
"""

from __future__ import annotations

from benchmate.cases.command import main
from benchmate.cases.registry import BenchmarkCase as Benchmark
from benchmate.cases.registry import RegistrationError, Skip, State, register

__all__ = ["Benchmark", "RegistrationError", "Skip", "State", "main", "register"]
