"""An equivariant interatomic potential trained by NequIP's own command and toy configuration, unmodified, from its wheel."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "nequip",
        "0.19.1",
        file="nequip-0.19.1-py3-none-any.whl",
        sha256="904823a6768f6dde87d1d1dbb1b5b1a25b3ae17a18fa62800a2ed3aa6f7dea4d",
    ),
    module="nequip.scripts.train",
    requirements="../_environments/science",
    # The configuration that the package ships divides by this variable.
    env={"TEST_VAL_TWO": "2"},
    prepare=None,
)
