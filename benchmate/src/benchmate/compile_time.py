"""How long the frameworks compiled, by their own account: torch's Dynamo keeps it, JAX tells whoever listens."""

from __future__ import annotations

import sys
from typing import Any

# Of a compilation in JAX: tracing, lowering, and the backend's own. What a cache gave back is under other names.
_JAX = "/jax/core/compile/"

_jax_s = 0.0
_is_listening = False


def listen_for_compilations() -> None:
    """From now on hear what JAX tells, also when it is imported later."""
    global _is_listening  # noqa: PLW0603  (JAX takes listeners for the whole process)
    if _is_listening:
        return
    _is_listening = True
    if not _subscribe():
        from benchmate.patching import ImportWatcher

        ImportWatcher(_subscribe).watch(("jax", "monitoring", ""))


def compile_seconds() -> dict[str, float]:
    """Seconds spent compiling in this process, by framework, where any were; all threads' and all functions' together."""
    found = {"torch": _torch_s(), "jax": _jax_s}
    return {name: value for name, value in found.items() if value > 0}


def _subscribe() -> bool:
    monitoring = sys.modules.get("jax.monitoring")
    register = getattr(monitoring, "register_event_duration_secs_listener", None)
    if register is None or getattr(register, "benchmate_listens", False):
        return False
    register(_on_duration)
    return True


def _on_duration(event: str, duration_s: float, **_: Any) -> None:
    global _jax_s  # noqa: PLW0603
    if event.startswith(_JAX):
        _jax_s += duration_s


def _torch_s() -> float:
    utils = sys.modules.get("torch._dynamo.utils")
    times = getattr(utils, "compilation_time_metrics", None) or {}
    try:
        # The outermost of the phases that Dynamo times; the others are parts of it.
        return sum(times.get("_compile.compile_inner") or times.get("entire_frame_compile") or ())
    except TypeError:
        return 0.0
