"""The benchmark's resolved configuration: how long to warm up and to measure, and the benchmark's own options."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from benchmate.devices.vendors.regular_file import read_regular
from benchmate.errors import BenchmateError

T = TypeVar("T")


# Named tuples, because every program starts with this module: importing dataclasses is a tenth of the runner's start.
class Measure(NamedTuple):
    """How much to observe. The defaults are the profile `quick`'s (protocol.md, 8).

    Warm-up ends when both its numbers are reached, the window when both of its are.
    """

    warmup_steps: int = 5
    warmup_s: float = 1.0
    window_steps: int = 20
    window_s: float = 3.0
    barrier: bool = False


_NUMBERS = ("warmup_steps", "warmup_s", "window_steps", "window_s")


class Config(NamedTuple):
    """The resolved configuration of a benchmark, as far as its own process needs it."""

    values: Mapping[str, Any]
    measure: Measure = Measure()

    @property
    def options(self) -> Mapping[str, Any]:
        """The options that the benchmark declared for itself, as the suite gave them."""
        return self.values.get("options") or {}

    @property
    def voir_options(self) -> Mapping[str, Any]:
        """Blocks of options for configurable instruments, by the name of the block."""
        return self.values.get("voir") or {}


def getenv(name: str, type: Callable[[str], T], default: T) -> T:  # noqa: A002  (its name in milabench 1.3)
    """Return an environment variable as a value of a type. The default where it is absent or no such value."""
    try:
        return type(os.environ[name])
    except (KeyError, ValueError):
        return default


def read_config(path: str | None) -> Config:
    """Read the JSON at `path`. No path means the defaults. Raise BenchmateError, with the path, when it cannot be read."""
    if not path:
        return Config({})
    try:
        values = json.loads(read_regular(path))
    except OSError as error:
        raise BenchmateError(
            f"{path}: {error.strerror}. --config takes the benchmark's resolved configuration"
        ) from error
    except ValueError as error:
        raise BenchmateError(f"{path}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise BenchmateError(f"{path}: expected a JSON object")
    return parse_config(values, path)


def parse_config(values: Mapping[str, Any], source: str = "configuration") -> Config:
    """Return the measuring rules of a resolved configuration. `stop` and `skip` of the suite win over the profile."""
    measure = values.get("measure") or {}
    options = (values.get("voir") or {}).get("options") or {}
    numbers: dict[str, Any] = {name: measure[name] for name in _NUMBERS if measure.get(name) is not None}
    # Names of voir, which suites written for the first milabench use.
    if options.get("stop") is not None:
        numbers["window_steps"] = options["stop"]
    if options.get("skip") is not None:
        numbers |= {"warmup_steps": options["skip"], "warmup_s": 0}
    parsed: dict[str, Any] = {}
    for name, value in numbers.items():
        try:
            parsed[name] = float(value) if name.endswith("_s") else int(value)
        except (TypeError, ValueError):
            raise BenchmateError(f"{source}: measure.{name}: expected a number, got {value!r}") from None
        if parsed[name] < 0:
            raise BenchmateError(f"{source}: measure.{name}: expected a number that is not negative, got {value!r}")
    return Config(measure=Measure(barrier=bool(measure.get("barrier", False)), **parsed), values=values)
