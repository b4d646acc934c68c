"""What the program uses of torch and JAX; neither is ever imported, nor a device started, on its behalf."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType


def initialized_devices(*names: str) -> Iterator[ModuleType]:
    """Yield those of torch's device modules (`cuda`, `xpu`, ...) that are in use."""
    for name in names:
        module: ModuleType | None = getattr(sys.modules.get("torch"), name, None)
        if module is not None and hasattr(module, "is_initialized") and module.is_initialized():
            yield module


def jax_is_started() -> bool:
    """Return whether JAX has started its backends; to ask JAX itself would start them."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_started = getattr(bridge, "backends_are_initialized", None)
    return is_started is not None and bool(is_started())


def process_group() -> ModuleType | None:
    """Return torch.distributed where the program has a process group; else None."""
    distributed: ModuleType | None = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed
