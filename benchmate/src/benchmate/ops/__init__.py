"""Operator micro-benchmarks: JSON configurations, 21 registered operators and any of torch's, times that can be believed.

The names below are the original library's. Each is imported when it is first used, so that `import benchmate.ops`
brings no torch.
"""

from __future__ import annotations

import importlib

_ITERATORS = ["ConfigIterator", "DefaultConfigIterator", "RangeConfigIterator", "DummyConfigIterator"]
_MACROS = ["full_range", "IterableList", "ListProduct", "TableProduct"]
_REGISTER = ["register_operator", "register_operators", "register_config_iterator", "register_data_generator"]
_MAKE = ["create_bench_config", "create_op_args", "create_op_info", "create_type"]
_NAMES = {
    "benchmark": ["Benchmark", "BenchmarkConfig", "make_default_benchmark"],
    "config_iterators": [*_ITERATORS, *_MACROS],
    "interface": ["DataGenerator", "OperatorInterface"],
    "arguments": ["DefaultDataGenerator"],
    "registry": [*_REGISTER, "op_map", "config_iterator_map", "data_generator_map"],
    "executor": ["OpExecutor"],
    "options": ["ExecutionPass", "OpExecutionMode", "Options", "get_benchmark_options"],
    "config_file": [*_MAKE, "OperatorConfig", "make_op_config"],
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605  (a list of the same names)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'benchmate.ops' has no attribute {name!r}")
    if _HOMES[name] == "registry":
        importlib.import_module("benchmate.ops.builtin")  # so that names of one's own cannot collide with these later
    return getattr(importlib.import_module(f"benchmate.ops.{_HOMES[name]}"), name)
