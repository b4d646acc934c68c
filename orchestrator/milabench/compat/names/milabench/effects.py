"""Whether foreign code may change anything outside of its process now: in `install` and `prepare`, not while it is planned."""

from __future__ import annotations

import contextvars

ALLOWED = contextvars.ContextVar("ALLOWED", default=False)


def require_effects(what: str) -> None:
    """Raise RuntimeError unless an install or a prepare is going on; `what` names the call."""
    if not ALLOWED.get():
        raise RuntimeError(f"{what} is possible in install and prepare only, not while a run is planned")
