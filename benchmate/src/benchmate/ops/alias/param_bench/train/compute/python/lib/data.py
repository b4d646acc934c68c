"""An old name of benchmate.ops."""

from __future__ import annotations

from benchmate.ops import DataGenerator, data_generator_map, register_data_generator

__all__ = ["DataGenerator", "data_generator_map", "register_data_generator"]
