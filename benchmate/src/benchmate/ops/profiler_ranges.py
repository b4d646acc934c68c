"""Ranges with the original's labels, so that the trace of an outside profiler can be joined to the records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from benchmate.ops.device import TorchDevice

# The ncu filter of old scripts names this range.
MEASURED = "param_bench:measure"


@contextlib.contextmanager
def profiler_range(device: TorchDevice, name: str, run_id: str, tag: str, direction: str) -> Iterator[None]:
    """`[param|<run id>|<tag>|<direction>]` for torch's profiler and, on CUDA, for NSight, inside `[param|<tag>]`."""
    from torch.profiler import record_function

    label = f"[param|{run_id if run_id.startswith(name) else f'{name}|{run_id}'}|{tag}|{direction}]"
    with contextlib.ExitStack() as stack:
        stack.enter_context(record_function(label))
        for text in (f"[param|{tag}]", label, *([MEASURED] if tag == "measure" else [])):
            stack.enter_context(device.range(text))
        yield
