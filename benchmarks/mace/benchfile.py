"""An equivariant interatomic potential trained by MACE's own command, unmodified, from its wheel."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "mace-torch",
        "0.3.16",
        file="mace_torch-0.3.16-py3-none-any.whl",
        sha256="b80407edf6b2a1ec8523668c2a36852d20927ce1c3c56b70983a9f2dc53233ad",
    ),
    module="mace.cli.run_train",
    # How many frames prepare.py makes, of a cell repeated so often in each direction.
    options={"frames": 64, "repeat": 1},
)
