"""TransE on a small knowledge graph by PyKEEN's own command line, unmodified, from its wheel."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "pykeen",
        "1.11.1",
        file="pykeen-1.11.1-py3-none-any.whl",
        sha256="b6cc0ab012fc6ba4f37b58fb7081a409a5c1f04cbbb0e0e9c2256e911757d4ba",
    ),
    module="pykeen",
)
