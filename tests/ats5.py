"""The benchmarks of ATS-5 with their weights in per cent and what a node of Crossroads, which has 6140, reaches in them.

github lanl/benchmarks 7e0fdf9, introduction.rst and SSNI-baseline.xlsx.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

ATS5_NODES: Final = 6140
ATS5: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "branson": (10.0, 959000.0),
        "amg2023-1": (5.0, 409900000.0),
        "amg2023-2": (5.0, 104010000.0),
        "miniem": (15.0, 9190.05),
        "mlmd-training": (5.0, 0.5986808),
        "mlmd-simulation": (5.0, 1341.0),
        "parthenon-vibe": (30.0, 26100000.0),
        "sparta": (10.0, 2522.14),
        "umt-1": (7.5, 7830500000.0),
        "umt-2": (7.5, 4307010000.0),
    }
)
