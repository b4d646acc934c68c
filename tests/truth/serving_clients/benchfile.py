"""The clients of a sweep: the driver starts them, the suite names the server."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(module="benchmate.serving.simulated", voirfile=None, prepare=None, env={"HF_HUB_OFFLINE": "1"})
