"""Contrastive learning of images and captions by OpenCLIP's own training program, unmodified, from its wheel."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "open-clip-torch",
        "3.3.0",
        file="open_clip_torch-3.3.0-py3-none-any.whl",
        sha256="c549ad5ed6bfc119cc11105033c0a2b9d7a2a4afeb40a58a09aab3da1a0043ce",
    ),
    module="open_clip_train.main",
    requirements="../_environments/vision",
    packages=(
        "braceexpand",
        "ftfy",
        "huggingface-hub",
        "numpy",
        "pandas",
        "pillow",
        "regex",
        "safetensors",
        "timm",
        "torch",
        "torchvision",
        "tqdm",
        "webdataset",
    ),
    env={"HF_HUB_OFFLINE": "1"},
)
