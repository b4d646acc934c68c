"""Pretraining of a llama-like model by LitGPT's own command, unmodified, from its wheel."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "litgpt",
        "0.5.13",
        file="litgpt-0.5.13-py3-none-any.whl",
        sha256="da044b76c52cd44fc0564f6177ed6cf186dde24f711ce8e71e1fd9e9da5f02b2",
    ),
    module="litgpt",
    requirements="../_environments/lightning",
    env={"HF_HUB_OFFLINE": "1"},
)
