"""A multilayer perceptron trained by Flax's own benchmark script, unmodified, from its sdist."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "flax",
        "0.12.8",
        file="flax-0.12.8.tar.gz",
        sha256="1bb438775b967a3f1f42b9c3d4ddf1d2883cd6406589f9cecdc244634036bdc4",
    ),
    script="benchmarks/nnx_simple_training.py",
    requirements="../_environments/jax",
    packages=("jax", "numpy", "optax"),
    # Otherwise JAX takes three quarters of the device's memory at once, and no reading of it means anything.
    env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
)
