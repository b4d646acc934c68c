"""The training program of timm's repository, unmodified, at the commit of a release."""

from __future__ import annotations

from milabench import Benchmark, Git

benchmark = Benchmark(
    # v1.0.28
    source=Git(
        "https://github.com/huggingface/pytorch-image-models.git", rev="8ef73809f622e0031bd7f4940265734aef8b9978"
    ),
    script="train.py",
    requirements="../_environments/vision",
    packages=("numpy", "pillow", "timm", "torch", "torchvision"),
)
