"""A trace of JAX for as long as a block lasts, when it is asked for."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def jax_profiler(trace_dir: str | None = None, enabled: bool | None = None) -> Iterator[None]:
    """Trace the work inside the `with` if `enabled`, or else MILABENCH_PROFILE, says so.

    The trace is written to `trace_dir`, MILABENCH_PROFILE_DIR, or `trace` in MILABENCH_DIR_EXTRA, the first that is given.
    """
    if enabled is None:
        enabled = os.environ.get("MILABENCH_PROFILE", "0") not in ("", "0")
    if not enabled:
        yield
        return
    import jax

    extra = os.environ.get("MILABENCH_DIR_EXTRA") or tempfile.gettempdir()
    folder = Path(trace_dir or os.environ.get("MILABENCH_PROFILE_DIR") or Path(extra, "trace"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"jax_profiler: tracing into {folder}")
    with jax.profiler.trace(folder):
        yield
