"""The present rights of foreign code: it may change files outside of its process in `install` and `prepare`, not in planning."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence

ALLOWED = contextvars.ContextVar("ALLOWED", default=False)
# The command that prepares, as it was planned and its templates rendered; None where nothing was planned.
PLANNED: contextvars.ContextVar[Sequence[str] | None] = contextvars.ContextVar("PLANNED", default=None)


def require_effects(what: str) -> None:
    """Raise RuntimeError unless an install or a prepare is going on. `what` names the call."""
    if not ALLOWED.get():
        raise RuntimeError(f"{what} is possible only in install and prepare, not while a run is planned")
