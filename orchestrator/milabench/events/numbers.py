"""Which numbers of parsed JSON can be computed with, and values made fit for strict JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# Nothing that is measured lies beyond these, in any unit. Within them the square of a rate, or a sum over any run, is finite.
LARGEST = 1e50
SMALLEST = 1e-50


def finite_number(value: Any) -> float | None:
    """Return a finite number up to `LARGEST`, of either sign, as a float; None for everything else that JSON can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -LARGEST <= value <= LARGEST else None


def positive(value: Any) -> float | None:
    """Return a number above zero that can be divided by, as `number`; None for everything else."""
    number = finite_number(value)
    return number if number is not None and number >= SMALLEST else None


def whole(value: Any, otherwise: int) -> int:
    """Return a whole number, 0 or more, as it is; `otherwise` for everything else that JSON can hold."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else otherwise


def strict(value: Any) -> Any:
    """Return the value with None for every number in it that is not finite, which strict JSON cannot express."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value
