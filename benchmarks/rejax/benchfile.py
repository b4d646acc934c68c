"""Proximal policy optimisation compiled as one JAX program by rejax's own training script, unmodified, from its sdist."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "rejax",
        "0.1.3",
        file="rejax-0.1.3.tar.gz",
        sha256="dc3bfb7d033169242d09012bc4c68764997975090fbfc483a0360b8e0f266b65",
    ),
    script="train.py",
    python_path=("src",),
    requirements="../_environments/jax",
    env={
        # Otherwise JAX takes three quarters of the device's memory at once, and no reading of it means anything.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "MPLBACKEND": "Agg",  # the script plots at its end
    },
    options={
        # The block that prepare.py writes into the script's configuration file.
        "ppo": {},
        # The mean return of the last episodes below which the training counts as wrong; null: none.
        "least_return": None,
    },
)
