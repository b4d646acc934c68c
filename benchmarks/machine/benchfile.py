"""Micro-benchmarks of a machine, with programs of our own: the suite says by `program` which of them."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    requirements="../_environments/torch",
    packages=("numpy", "torch"),
    script="{program}.py",
    # Each program measures itself and writes to the sink.
    voirfile=None,
    options={
        "program": "memory",
        # What prepare.py makes for sample_reads.py.
        "samples": {"files": 64, "bytes": 65536, "format": "raw"},
    },
)
