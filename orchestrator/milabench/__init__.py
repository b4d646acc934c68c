"""milabench: plans, runs, records and reports machine learning benchmarks.

Importing it imports nothing else: each name is imported from its module when it is first used (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from milabench.version import __version__ as __version__

if TYPE_CHECKING:
    from milabench.api import AcceptanceResult as AcceptanceResult
    from milabench.api import ComparisonResult as ComparisonResult
    from milabench.api import PlanResult as PlanResult
    from milabench.api import RunResult as RunResult
    from milabench.api import accept as accept
    from milabench.api import compare as compare
    from milabench.api import load as load
    from milabench.api import plan_suite as plan_suite
    from milabench.api import run as run
    from milabench.bench.api import Benchmark as Benchmark
    from milabench.bench.api import Git as Git
    from milabench.bench.api import PyPI as PyPI
    from milabench.errors import ConfigError as ConfigError
    from milabench.errors import EnvironmentFailed as EnvironmentFailed
    from milabench.errors import MilabenchError as MilabenchError
    from milabench.errors import NothingSelected as NothingSelected
    from milabench.errors import RecordError as RecordError
    from milabench.errors import Unreachable as Unreachable
    from milabench.errors import UsageError as UsageError
    from milabench.workflow.options import CollectingReporter as CollectingReporter
    from milabench.workflow.options import Reporter as Reporter

_PUBLIC = {
    "milabench.api": (
        "load",
        "compare",
        "accept",
        "plan_suite",
        "run",
        "RunResult",
        "ComparisonResult",
        "AcceptanceResult",
        "PlanResult",
    ),
    "milabench.bench.api": ("Benchmark", "PyPI", "Git"),
    "milabench.workflow.options": ("Reporter", "CollectingReporter"),
    "milabench.errors": (
        "MilabenchError",
        "ConfigError",
        "UsageError",
        "NothingSelected",
        "EnvironmentFailed",
        "Unreachable",
        "RecordError",
    ),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = ["__version__", *_MODULES]  # noqa: PLE0604  every name is a string


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'milabench' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
