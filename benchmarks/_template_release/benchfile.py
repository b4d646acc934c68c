"""@NAME@: @START@ of @PROJECT@ @VERSION@, unmodified, from its release file."""

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "@PROJECT@",
        "@VERSION@",
        file="@FILE@",
        sha256="@SHA256@",
    ),
    script="@SCRIPT@",
    # Name a script that makes its data once, with the arguments of the run: prepare="prepare.py".
    prepare=None,
)
