"""The ImageNet program of pytorch/examples, unmodified, at a commit of that repository."""

from __future__ import annotations

from milabench import Benchmark, Git

benchmark = Benchmark(
    source=Git("https://github.com/pytorch/examples.git", rev="77f55b912142e11fcfdf5b530231fb9c52f181e8"),
    script="imagenet/main.py",
    prepare=None,
    requirements="../_environments/vision",
)
