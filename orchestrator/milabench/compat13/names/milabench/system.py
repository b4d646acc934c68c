"""Options of the system file and of the environment (MILABENCH_ + name), the environment first."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

system_global: contextvars.ContextVar[Mapping[str, Any] | None] = contextvars.ContextVar("system", default=None)
_FALSE = ("", "0", "false", "no", "off")


def as_environment_variable(name: str) -> str:
    """Return the variable of an option: `torchrun.port` is MILABENCH_TORCHRUN_PORT."""
    return "MILABENCH_" + name.replace(".", "_").upper()


def option(name: str, etype: Callable[[Any], Any], default: Any = None) -> Any:
    """Return the value of the option `name` as `etype`: from its variable, from the system's `options`, or the default.

    A value that is given counts, also 0 and empty text. Raises ValueError for a value of another type.
    """
    value: Any = os.environ.get(as_environment_variable(name))
    if value is None:
        value = (system_global.get() or {}).get("options")
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        value = default
    if value is None:
        return None
    if etype is bool and isinstance(value, str):
        return value.lower() not in _FALSE
    try:
        return etype(value)
    except ValueError:
        raise ValueError(f"{as_environment_variable(name)}: {value!r} is no {etype.__name__}") from None


@dataclass
class DockerConfig:
    """The container of a system file. Without an image there is none."""

    executable: str = "podman"
    image: str | None = None
    base: str = "/tmp/workspace"
    args: Sequence[str] = field(default_factory=list)

    def command(self, extra_args: Sequence[str]) -> list[str]:
        """Return the words that start the container, up to its image."""
        return [self.executable, "run", *self.args, *extra_args, str(self.image)]
