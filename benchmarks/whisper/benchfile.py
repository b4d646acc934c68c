"""Transcription by OpenAI's whisper command, unmodified, from its sdist."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "openai-whisper",
        "20250625",
        file="openai_whisper-20250625.tar.gz",
        sha256="37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96",
    ),
    module="whisper",
    # What prepare.py makes: a model of these dimensions with random weights, and so many windows of 30 s of audio.
    options={"dims": {}, "windows": 120},
)
