"""Programs of pytorch-ignite's examples, unmodified, from its sdist: a digit classifier and an adversarial generator."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "pytorch-ignite",
        "0.5.5",
        file="pytorch_ignite-0.5.5.tar.gz",
        sha256="2c14de75c939a3cc06d2e7de00b1e0a261917ef9bd874dac2e69d789dfa9cc64",
    ),
    script="examples/{example}.py",
    python_path=(".",),
    cwd="data",  # the classifier reads ./MNIST
    requirements="../_environments/vision",
    packages=("numpy", "packaging", "pillow", "torch", "torchvision", "tqdm"),
    options={"example": "mnist/mnist"},
)
