"""An old name of benchmate.ops."""

from __future__ import annotations

from benchmate.ops import OperatorInterface, op_map, register_operator, register_operators

__all__ = ["OperatorInterface", "op_map", "register_operator", "register_operators"]
