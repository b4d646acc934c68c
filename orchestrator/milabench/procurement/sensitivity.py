"""The inputs that decide a result: the result at both ends of each input alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from milabench.errors import UsageError

Result = Callable[[Mapping[str, float]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRange:
    """An input of an answer, the range in which it was varied, and its source: as stated, as in the score, or as assumed."""

    name: str
    value: float
    low: float
    high: float
    units: str = ""
    basis: Literal["stated", "scored", "assumed"] = "stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """The results at the low and at the high end of an input, all others at their value."""

    input: InputRange
    low: float
    high: float

    @property
    def width(self) -> float:
        """How far the two are apart."""
        return abs(self.high - self.low)


def one_at_a_time(result: Result, inputs: Sequence[InputRange]) -> tuple[Swing, ...]:
    """Return the swing of each input that can be off, the widest first. Raises UsageError where the result is not finite."""
    centre = {given.name: given.value for given in inputs}
    swings = [
        Swing(
            input=given,
            low=_finite(result, {**centre, given.name: given.low}),
            high=_finite(result, {**centre, given.name: given.high}),
        )
        for given in inputs
        if given.low < given.high
    ]
    return tuple(sorted(swings, key=lambda swing: -swing.width))


def _finite(result: Result, values: Mapping[str, float]) -> float:
    value = result(values)
    if not math.isfinite(value):
        given = ", ".join(f"{name}={each:g}" for name, each in values.items())
        raise UsageError(f"the result is {value} at {given}: narrow the inputs so that it is a number everywhere")
    return value
