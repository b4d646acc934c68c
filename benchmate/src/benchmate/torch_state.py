"""The parts of torch that the program has initialised; torch is never imported, nor any device started, on its behalf."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType


def initialized_device(names: Iterable[str]) -> ModuleType | None:
    """Return the first of torch's device modules (`cuda`, `xpu`, ...) that is in use; None on the host."""
    torch = sys.modules.get("torch")
    for name in names:
        module: ModuleType | None = getattr(torch, name, None)
        if module is not None and hasattr(module, "is_initialized") and module.is_initialized():
            return module
    return None


def process_group() -> ModuleType | None:
    """Return torch.distributed where the program has a process group; else None."""
    distributed: ModuleType | None = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed
