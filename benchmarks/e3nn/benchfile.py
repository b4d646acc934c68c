"""Equivariant tensor products by e3nn's own benchmark script, unmodified, from its sdist."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "e3nn",
        "0.6.0",
        file="e3nn-0.6.0.tar.gz",
        sha256="5c2b414e9527aad27d755ae9546596e3f7706f45a21dae71c7deedb6c048e4de",
    ),
    script="examples/tensor_product_benchmark.py",
    python_path=(".",),
    requirements="../_environments/science",
    packages=("numpy", "opt_einsum_fx", "scipy", "sympy", "torch"),
    prepare=None,
)
