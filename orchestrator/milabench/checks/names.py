"""The names of the checks, and what `--validations` says with them."""

from __future__ import annotations

from milabench.errors import UsageError

# In the order in which they are told.
NAMES = (
    "error",
    "rate",
    "loss",
    "placement",
    "usage",
    "throttle",
    "power",
    "foreign",
    "sensor",
    "energy",
    "versions",
)


def parse_checks(text: str) -> tuple[str, ...]:
    """The names of the checks that `all`, `none` or `name,...` stands for. Raises UsageError for an unknown one."""
    if text == "all":
        return NAMES
    if text == "none":
        return ()
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in NAMES:
            raise UsageError(f"--validations: no check '{name}'; known: all, none, {', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in wanted)
