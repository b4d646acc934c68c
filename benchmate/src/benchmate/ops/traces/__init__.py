"""PyTorch execution traces: recorded, summarised, made into configurations, replayed on any machine."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """`python -m benchmate.ops trace ...`; returns the exit code."""
    from benchmate.ops.traces import cli

    return cli.main(argv)
