"""An old name of benchmate.ops."""

from __future__ import annotations

from benchmate.ops import OpExecutor

__all__ = ["OpExecutor"]
