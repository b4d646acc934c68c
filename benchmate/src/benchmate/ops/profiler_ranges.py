"""Ranges with the original's labels, so that the trace of an outside profiler can be joined to the records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmate.ops.device import TorchDevice

# The ncu filter of old scripts names this range.
MEASURED = "param_bench:measure"


@contextmanager
def profiler_range(place: TorchDevice, name: str, run_id: str, tag: str, direction: str) -> Iterator[None]:
    """`[param|<run id>|<tag>|<direction>]` for torch's profiler and, on CUDA, for NSight, inside `[param|<tag>]`."""
    from torch.profiler import record_function

    label = f"[param|{run_id if run_id.startswith(name) else f'{name}|{run_id}'}|{tag}|{direction}]"
    with record_function(label), place.range(f"[param|{tag}]"), place.range(label):
        if tag == "measure":
            with place.range(MEASURED):
                yield
        else:
            yield
