"""An old name of benchmate.ops."""

from __future__ import annotations

from benchmate.ops import IterableList, ListProduct, TableProduct, full_range

__all__ = ["IterableList", "ListProduct", "TableProduct", "full_range"]
