"""The program's use of torch and JAX. Neither is ever imported, nor a device started, on its behalf."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import ModuleType


def initialized_devices(*names: str) -> Iterator[ModuleType]:
    """Yield torch's device modules (`cuda`, `xpu`, ...) that are in use."""
    for name in names:
        module: ModuleType | None = getattr(sys.modules.get("torch"), name, None)
        if module is not None and hasattr(module, "is_initialized") and module.is_initialized():
            yield module


def known_devices(module: ModuleType) -> list[int]:
    """Return the numbers of the devices of a torch module whose memory can be asked for: the current one comes first.

    Only torch's own allocator answers for another device without starting it.
    """
    current: int = module.current_device()
    has_own_allocator = getattr(module, "get_allocator_backend", lambda: "native")() == "native"
    return [current, *(number for number in range(module.device_count()) if number != current and has_own_allocator)]


def used_devices(module: ModuleType) -> list[int]:
    """Return the numbers of the devices that this process uses: the current one, then others on which torch has memory."""
    current, *others = known_devices(module)
    return [current, *(number for number in others if module.memory_reserved(number))]


def launched_rank() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks, as a launcher such as torchrun tells them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def jax_is_started() -> bool:
    """Return whether JAX has started its backends. To ask JAX itself would start them."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_started = getattr(bridge, "backends_are_initialized", None)
    return is_started is not None and bool(is_started())


def process_group() -> ModuleType | None:
    """Return torch.distributed where the program has a process group. Else None."""
    distributed: ModuleType | None = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed
