"""`python -m benchmate.ops alias`: the folder to put on PYTHONPATH so that old imports of param_bench and its commands work.

Opt-in, because users with the original installed mean the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Print the folder."""
    print(Path(__file__).resolve().parent)
    return 0
