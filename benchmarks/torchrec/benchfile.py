"""DLRM trained by TorchRec, unmodified, from its wheel; a short driver of ours builds the model and calls its pipeline."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "torchrec",
        "1.8.0",
        file="torchrec-1.8.0-py311-none-any.whl",
        sha256="c6f9785faf6663310d955102b3077fb9ed7a9d8f866061a64247cc51915034f2",
    ),
    module="train_dlrm",  # in this folder, which the suite puts on PYTHONPATH
    requirements="../_environments/recommendation",
    prepare=None,
)
