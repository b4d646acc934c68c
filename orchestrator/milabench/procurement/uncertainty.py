"""A number with its uncertainty, and its propagation through computations: the delta method on logarithms.

ln f(x) varies by the sum of e_i d_i, where d_i is the deviation of ln x_i and e_i = d ln f / d ln x_i. Independent deviations add
as squares, deviations of one source as they are, so that a shared part cancels in a ratio. Degrees of freedom are after
Welch and Satterthwaite. Intervals are f exp(+- t sd): they stay above zero.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

from milabench.analysis.intervals import Interval, normal_quantile
from milabench.analysis.json_codec import JsonKey
from milabench.analysis.sample_statistics import log_stdev, mean
from milabench.analysis.two_samples import Estimate
from milabench.errors import ConfigError, Problem

Mean = Literal["geometric", "arithmetic", "harmonic"]

# Of the logarithm, to either side: a power law has no other error than rounding, anything smooth one of about 1e-9.
_STEP = 1e-4


class Deviation(NamedTuple):
    """The deviation of a number's logarithm from a source: a signed standard deviation, and its degrees of freedom.

    Deviations of the same `source` are identical. An empty source is independent of all others.
    """

    sd: float
    freedom: float = math.inf
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainValue:
    """A number above zero with the deviations of its logarithm: none of a constant, None where they are not known.

    In JSON it has its 95 % interval, null where that is not known.
    """

    value: float
    units: Annotated[str, JsonKey(followed_by=("ci95",))] = ""
    deviations: Annotated[tuple[Deviation, ...] | None, JsonKey(is_written=False)] = ()

    def __post_init__(self) -> None:
        """Raise ConfigError unless the value is finite and above zero."""
        if not (math.isfinite(self.value) and self.value > 0):
            raise ConfigError(Problem("", "", f"expected a number above zero, got {self.value:g}"))

    @classmethod
    def of_launches(cls, values: Sequence[float], units: str = "", source: str = "") -> UncertainValue:
        """Return the geometric mean of independent repeats. The uncertainty of a single repeat is not known."""
        if not values or any(not (math.isfinite(value) and value > 0) for value in values):
            raise ConfigError(Problem("", source, f"expected repeats with numbers above zero, got {list(values)}"))
        spread = log_stdev(values)
        sd = None if spread is None else spread / math.sqrt(len(values))
        centre = math.exp(mean([math.log(value) for value in values])) if len(values) > 1 else values[0]
        deviations = None if sd is None else (Deviation(sd, len(values) - 1, source),)
        return cls(value=centre, units=units, deviations=deviations)

    @classmethod
    def of_error(
        cls, value: float, error: float, units: str = "", freedom: float = math.inf, source: str = ""
    ) -> UncertainValue:
        """Return a number with its standard error, in the same units."""
        return cls(value=value, units=units, deviations=(Deviation(error / value, freedom, source),))

    @classmethod
    def within(cls, value: float, share: float, units: str = "", source: str = "") -> UncertainValue:
        """Return a number that is declared to lie within this share of itself, 0.1 for 10 %, in 95 of 100 cases."""
        if not 0 <= share < math.inf:
            raise ConfigError(Problem("", source, f"expected a share from zero up, 0.1 for 10 %, got {share:g}"))
        sd = math.log1p(share) / normal_quantile(0.975)
        return cls(value=value, units=units, deviations=(Deviation(sd, math.inf, source),) if sd else ())

    @property
    def log_estimate(self) -> Estimate | None:
        """Its logarithm with the error of that. None where the uncertainty is not known."""
        if self.deviations is None:
            return None
        return Estimate.of_variances(math.log(self.value), [(part.sd**2, part.freedom) for part in self.deviations])

    @property
    def ci95(self) -> Interval | None:
        """The 95 % interval."""
        return self.interval()

    def interval(self, level: float = 0.95) -> Interval | None:
        """Return the interval value exp(-+ t sd), which is the value alone for a constant. None where it is not known."""
        estimate = self.log_estimate
        if estimate is None:
            return None
        low, high = replace(estimate, d=0.0).ratio_interval(level)
        return self.value * low, self.value * high


def constant(value: float, units: str = "") -> UncertainValue:
    """Return a number of a contract or a table, which is not measured. Raises ConfigError unless it is above zero."""
    return UncertainValue(value=value, units=units)


def combine(value: float, terms: Sequence[tuple[UncertainValue, float]], units: str = "") -> UncertainValue:
    """Return a number that was computed from others, each given with d ln value / d ln number."""
    single: list[Deviation] = []
    shared: defaultdict[tuple[str, float], float] = defaultdict(float)
    for term, elasticity in terms:
        if not elasticity:
            continue
        if term.deviations is None:
            return UncertainValue(value=value, units=units, deviations=None)
        for part in term.deviations:
            if part.source:
                shared[part.source, part.freedom] += elasticity * part.sd
            else:
                single.append(part._replace(sd=elasticity * part.sd))
    single += [Deviation(sd, freedom, source) for (source, freedom), sd in shared.items() if sd]
    return UncertainValue(value=value, units=units, deviations=tuple(single))


def product(powers: Sequence[tuple[UncertainValue, float]], factor: float = 1.0, units: str = "") -> UncertainValue:
    """Return factor times each number to its power."""
    # Divided, and not multiplied by an inverse: a number over itself is exactly 1.
    above = math.prod([number.value**power for number, power in powers if power > 0], start=factor)
    below = math.prod([number.value**-power for number, power in powers if power < 0])
    return combine(above / below, powers, units)


def weighted_mean(kind: Mean, values: Sequence[UncertainValue], weights: Sequence[float]) -> UncertainValue:
    """Return the weighted mean of numbers in the same units. Raises ConfigError for weights below zero, or that are all zero."""
    total = math.fsum(weights)
    if not values or not total > 0 or not math.isfinite(total) or min(weights) < 0:
        raise ConfigError(Problem("", "weights", f"expected weights from zero up, not all zero, got {list(weights)}"))
    shares = [weight / total for weight in weights]
    units = same_units(values)
    if kind == "geometric":
        logs = math.fsum(weight * math.log(number.value) for weight, number in zip(weights, values, strict=True))
        return combine(math.exp(logs / total), list(zip(values, shares, strict=True)), units)
    power = 1 if kind == "arithmetic" else -1
    parts = [share * number.value**power for share, number in zip(shares, values, strict=True)]
    whole = math.fsum(parts)
    return combine(whole**power, [(number, part / whole) for number, part in zip(values, parts, strict=True)], units)


def sum_of(values: Sequence[UncertainValue]) -> UncertainValue:
    """Return the sum of numbers in the same units. Raises ConfigError where the units differ or there is no number."""
    return product([(weighted_mean("arithmetic", values, [1] * len(values)), 1)], len(values), same_units(values))


def propagate(
    function: Callable[[Mapping[str, float]], float], inputs: Mapping[str, UncertainValue], units: str = ""
) -> UncertainValue:
    """Return the function of inputs by name. It is differentiated numerically, so is to be smooth and above zero around them.

    An input that is used several times counts once. At a kink, as of `min`, the uncertainty is of neither side.
    """
    centre = {name: number.value for name, number in inputs.items()}
    value = function(centre)
    terms = []
    for name, number in inputs.items():
        if number.deviations == ():
            continue
        ends = [function({**centre, name: number.value * math.exp(sign * _STEP)}) for sign in (1, -1)]
        if min(ends) <= 0:
            raise ConfigError(
                Problem("", "", f"expected a number above zero around {name}={number.value:g}, got {value:g}")
            )
        terms.append((number, (math.log(ends[0]) - math.log(ends[1])) / (2 * _STEP)))
    return combine(value, terms, units)


def same_units(values: Sequence[UncertainValue], path: str = "") -> str:
    """Return the units of all these numbers. Raises ConfigError where they differ, as for prices in two currencies."""
    units = sorted({number.units for number in values})
    if len(units) > 1:
        named = " and ".join(repr(unit) for unit in units)
        raise ConfigError(Problem("", path, f"units differ: {named}", "convert to the same units"))
    return units[0] if units else ""
