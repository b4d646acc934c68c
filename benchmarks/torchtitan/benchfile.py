"""Pretraining by torchtitan's own training program, unmodified, from its wheel."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "torchtitan",
        "0.3.0",
        file="torchtitan-0.3.0-py3-none-any.whl",
        sha256="5563ccf9a295b24e00a36087149e9c2d0686cecbd3972c31e67227029293af42",
    ),
    module="torchtitan.train",
    env={"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
)
