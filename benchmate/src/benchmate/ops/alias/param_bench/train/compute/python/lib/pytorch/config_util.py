"""An old name of benchmate.ops."""

from __future__ import annotations

from benchmate.ops import (
    ExecutionPass,
    create_bench_config,
    create_op_args,
    create_op_info,
    create_type,
    get_benchmark_options,
)

__all__ = [
    "ExecutionPass",
    "create_bench_config",
    "create_op_args",
    "create_op_info",
    "create_type",
    "get_benchmark_options",
]
