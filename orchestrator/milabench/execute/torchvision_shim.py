"""Lets torchvision be imported with a torch that its operators were not built for. Code that needs the operators raises.

Copied into an environment, whose interpreter imports it at every start.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

# What torchvision describes further while it is imported, whether its extension was loaded or not.
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries: list[object] = []  # what is defined goes with the library


def define() -> None:
    """Define the operators that torchvision wants to find. None of them has a kernel."""
    from torch import library, ops

    if not hasattr(ops.torchvision, "nms"):
        operators = library.Library("torchvision", "DEF")
        for schema in SCHEMAS:
            operators.define(schema)
        _libraries.append(operators)


class Finder:
    """Finds torchvision as Python does, and has the operators defined before it is executed: not when it is looked for."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the specification of torchvision. None for everything else."""
        spec = PathFinder.find_spec(name, path, target) if name == "torchvision" else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            define()
            execute(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder)
