"""An old name of benchmate.ops."""

from __future__ import annotations

from benchmate.ops import DefaultDataGenerator

__all__ = ["DefaultDataGenerator"]
