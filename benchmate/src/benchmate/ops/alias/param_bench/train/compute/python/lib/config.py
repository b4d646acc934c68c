"""An old name of benchmate.ops."""

from __future__ import annotations

from benchmate.ops import (
    BenchmarkConfig,
    ConfigIterator,
    DefaultConfigIterator,
    DummyConfigIterator,
    RangeConfigIterator,
    config_iterator_map,
    make_op_config,
    register_config_iterator,
)

__all__ = [
    "BenchmarkConfig",
    "ConfigIterator",
    "DefaultConfigIterator",
    "DummyConfigIterator",
    "RangeConfigIterator",
    "config_iterator_map",
    "make_op_config",
    "register_config_iterator",
]
