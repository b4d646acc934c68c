"""Functions that programs of milabench 1.3 ask of `torchcompat.core`, and that it lacks on some devices: supplied where absent.

Importing this module imports neither torch nor torchcompat.
"""

from __future__ import annotations

import sys

from benchmate.patching import call_when_imported

MODULE = "torchcompat.core"


def _manual_seed(seed: int) -> object:
    import torch

    return torch.manual_seed(seed)


def _no_bytes(device: object = None) -> int:
    """Return 0: the peak, in bytes, of a device whose allocator keeps no count."""
    return 0


_FUNCTIONS = {
    "manual_seed": _manual_seed,
    "manual_seed_all": _manual_seed,
    "max_memory_allocated": _no_bytes,
    "max_memory_reserved": _no_bytes,
    "memory_allocated": _no_bytes,
    "memory_reserved": _no_bytes,
}


def _supply() -> None:
    module = sys.modules[MODULE]
    for name, function in _FUNCTIONS.items():
        if not hasattr(module, name):
            setattr(module, name, function)


def supply_when_imported() -> None:
    """Supply missing names, now or as soon as torchcompat has been imported."""
    call_when_imported(MODULE, _supply)
