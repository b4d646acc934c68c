"""Values of records, which anything may have written: numbers to compute with, mappings, strict JSON, text for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

# Nothing that is measured lies beyond these, in any unit. Within them the square of a rate, or a sum over any run, is finite.
LARGEST_NUMBER = 1e50
SMALLEST_NUMBER = 1e-50


def finite_number(value: object) -> float | None:
    """Return a finite number up to `LARGEST_NUMBER`, of either sign, as a float. None for everything else that JSON can hold."""
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, int | float)):
        return None
    return float(value) if -LARGEST_NUMBER <= value <= LARGEST_NUMBER else None


def written_number(value: object) -> float | None:
    """Return a number, or a number written as text, as `finite_number` does. None for everything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_number(value)


def positive(value: object) -> float | None:
    """Return a number above zero that can be divided by, as `number`. None for everything else."""
    number = finite_number(value)
    return number if number is not None and number >= SMALLEST_NUMBER else None


def whole(value: object, otherwise: int) -> int:
    """Return a whole number, 0 or more, as it is. `otherwise` for everything else that JSON can hold."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else otherwise


def strict(value: object, name: str = "", nonfinite: list[str] | None = None) -> Any:
    """Return the value with None for every number in it that is not finite, which strict JSON cannot express.

    `name` is the key of the value. The keys of such numbers are added to `nonfinite`.
    """
    if isinstance(value, float) and not math.isfinite(value):
        if nonfinite is not None:
            nonfinite.append(name)
        return None
    if isinstance(value, Mapping):
        return {key: strict(item, str(key), nonfinite) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item, name, nonfinite) for item in value]
    return value


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the value when it is a mapping, else an empty mapping."""
    # A class that others register with is slow to ask: five times as fast.
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def mappings_in(value: object) -> list[Mapping[str, Any]]:
    """Return the items of a list, each as a mapping. Nothing when the value is no list."""
    return [as_mapping(item) for item in value] if isinstance(value, list | tuple) else []


# Control sequences of terminals (colours, cursor movements; ECMA-48) and of window titles.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def one_line(text: str) -> str:
    """Return the text on a single line, without colours and other terminal control sequences. Runs of blanks become a blank."""
    return " ".join("".join(c if c.isprintable() else " " for c in _SEQUENCE.sub("", text)).split())
