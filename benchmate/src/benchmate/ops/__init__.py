"""Operator micro-benchmarks: JSON configurations, 21 registered operators and any of torch's, times that can be believed.

The names below are those of the original's library; each is imported when it is first used, so that `import benchmate.ops`
brings no torch.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "Benchmark": "benchmark",
    "BenchmarkConfig": "benchmark",
    "make_default_benchmark": "benchmark",
    "ConfigIterator": "config_iterators",
    "DefaultConfigIterator": "config_iterators",
    "RangeConfigIterator": "config_iterators",
    "DummyConfigIterator": "config_iterators",
    "DataGenerator": "interface",
    "DefaultDataGenerator": "data_generators",
    "OperatorInterface": "interface",
    "register_operator": "registry",
    "register_operators": "registry",
    "register_config_iterator": "registry",
    "register_data_generator": "registry",
    "op_map": "registry",
    "config_iterator_map": "registry",
    "data_generator_map": "registry",
    "OpExecutor": "executor",
    "ExecutionPass": "options",
    "Options": "options",
    "get_benchmark_options": "options",
    "create_bench_config": "config_builder",
    "create_op_args": "config_builder",
    "create_op_info": "config_builder",
    "create_type": "config_builder",
    "make_op_config": "config_builder",
    "full_range": "macros",
    "IterableList": "macros",
    "ListProduct": "macros",
    "TableProduct": "macros",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605  (a list of the same names)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'benchmate.ops' has no attribute {name!r}")
    if _HOMES[name] == "registry":
        importlib.import_module("benchmate.ops.builtin")  # so that names of one's own cannot collide with these later
    return getattr(importlib.import_module(f"benchmate.ops.{_HOMES[name]}"), name)
