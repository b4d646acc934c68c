"""How long the frameworks compiled, as they report it: torch's Dynamo keeps totals, JAX calls listeners."""

from __future__ import annotations

import sys

from benchmate.patching import apply_when_imported, registration

# JAX reports tracing, lowering and the backend's compilation under this prefix; what comes from a cache has other names.
_JAX = "/jax/core/compile/"

_jax_s = 0.0


def listen_for_compilations() -> None:
    """Add up the compile times that JAX reports from now on, also when it is imported later. To be called once in a process."""
    apply_when_imported(registration("jax.monitoring.register_event_duration_secs_listener", _on_duration))


def leave_probes_uncompiled() -> None:
    """Let Dynamo run what is ours as it stands: traced, it would be compiled again at each step, for its counts change.

    Only for a program with probes: benchmate.ops has functions that are to be compiled.
    """
    apply_when_imported(registration("torch._dynamo.trace_rules.add", "benchmate"))


def compile_seconds() -> dict[str, float]:
    """Return the seconds spent compiling in this process, by framework, over all threads and functions. Omit zeros."""
    seconds = {"torch": _torch_s(), "jax": _jax_s}
    return {framework: value for framework, value in seconds.items() if value > 0}


def _on_duration(event: str, duration_s: float, **_: object) -> None:
    global _jax_s  # noqa: PLW0603
    if event.startswith(_JAX):
        _jax_s += duration_s


def _torch_s() -> float:
    utils = sys.modules.get("torch._dynamo.utils")
    times = getattr(utils, "compilation_time_metrics", None) or {}
    try:
        # The outermost of the phases that Dynamo times; the others are parts of it.
        # The second name is that of older versions of torch.
        return sum(times.get("_compile.compile_inner") or times.get("entire_frame_compile") or ())
    except TypeError:
        return 0.0
