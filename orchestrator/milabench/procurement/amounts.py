"""Amounts as tenders and offers write them: a number with its unit and its uncertainty.

`0.12 +- 0.02 EUR/kWh`, `10.2 kW +- 2 %`, `300 k EUR`, `[0.10 EUR/kWh, 0.14 EUR/kWh]`. The range holds in 95 of 100 cases.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from milabench.analysis.intervals import normal_quantile
from milabench.config.kinds import INVALID, Kind, ValueParser
from milabench.config.source_map import Located, display_value
from milabench.procurement.uncertainty import Deviation, UncertainValue

_NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_AMOUNT: Final = re.compile(
    rf"\s*(?P<number>{_NUMBER})\s*(?P<units>.*?)\s*(?:(?:\+-|\+/-|±)\s*(?P<error>{_NUMBER})\s*(?P<error_units>.*?)\s*)?\Z",
    re.DOTALL,
)
_SCALES: Final[Mapping[str, float]] = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_CURRENCY: Final = re.compile(r"[A-Z]{3}\Z")
_MOST: Final = 1e30


class Dimension(NamedTuple):
    """The units of a kind of amount with the value of each in `units`. `example` shows an amount.

    `units` that begin with `*` are of money, for which any currency stands. Without `worth` any units are taken as they are.
    """

    units: str
    worth: Mapping[str, float]
    example: str


MONEY = Dimension("*", {"*": 1.0}, "300 k EUR")
MONEY_PER_KWH = Dimension("*/kWh", {"*/kWh": 1.0, "*/MWh": 1e-3, "*/Wh": 1e3}, "0.12 +- 0.02 EUR/kWh")
POWER = Dimension("kW", {"W": 1e-3, "kW": 1.0, "MW": 1e3}, "10.2 kW +- 2 %")
CARBON_OF_ENERGY = Dimension("g/kWh", {"g/kWh": 1.0, "kg/kWh": 1e3, "kg/MWh": 1.0, "t/MWh": 1e3}, "350 g/kWh")
CARBON = Dimension("kg", {"g": 1e-3, "kg": 1.0, "t": 1e3}, "1200 kg")
YEARS = Dimension("", {"": 1.0, "years": 1.0, "year": 1.0}, "5 +- 1")
SHARE = Dimension("", {"": 1.0, "%": 0.01}, "0.8 +- 0.1")
ANY = Dimension("", {}, "699.78 s")


class Amount(Kind):
    """An amount of a dimension, in its units. `at_least` and `at_most` bound the number itself.

    With `may_be_zero` an amount of 0 is read as none. Others are above 0, for they have a logarithm.
    """

    def __init__(
        self, dimension: Dimension, at_least: float = 0.0, at_most: float = _MOST, *, may_be_zero: bool = False
    ) -> None:
        self.dimension, self.at_least, self.at_most, self.may_be_zero = dimension, at_least, at_most, may_be_zero
        self.expected = f"an amount above 0 such as '{dimension.example}'"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        """Return an `UncertainValue` with a deviation of this place alone, None for a zero, INVALID after noting a problem."""
        source = f"{node.mark.source.name}:{path}"
        if type(node.value) is list:
            return self._between(node, path, parser, source)
        if isinstance(node.value, bool) or not isinstance(node.value, int | float | str):
            return parser.expected(self.expected, node, path)
        match = _AMOUNT.match(str(node.value))
        if match is None:
            return parser.expected(self.expected, node, path)
        error_units = match["error_units"] or ""
        is_share = error_units.split()[:1] == ["%"] and match["units"] != "%"
        written = match["units"] or (error_units.removeprefix("%").strip() if is_share else error_units)
        value = self._converted(match["number"], written, node, path, parser)
        if value is INVALID or value is None or match["error"] is None:
            return value
        if is_share:
            if error_units.removeprefix("%").strip() not in ("", written):
                return parser.expected(self.expected, node, path)
            share = float(match["error"]) / 100
        else:
            # Without units of its own the error has those of the number, its scale too.
            if error_units and match["units"] and _scaled(error_units)[1] != _scaled(written)[1]:
                return parser.reject(node, path, f"number and error have different units: {display_value(node)}")
            factor = _scaled(error_units or written)[0] * self._worth(_scaled(written)[1])
            share = float(match["error"]) * factor / value.value
        if share < 0:
            return parser.reject(node, path, f"an error below zero: {display_value(node)}")
        if share >= 1:
            what = f"an error of the whole number or more: {display_value(node)}"
            return parser.reject(node, path, what, "give its bounds, as [low, high]")
        return UncertainValue.within(value.value, share, value.units, source=source)

    def _between(self, node: Located, path: str, parser: ValueParser, source: str) -> Any:
        """Return the amount between two bounds: their geometric mean."""
        bounds = [self.parse(item, path, parser) for item in node.value]
        if INVALID in bounds:
            return INVALID
        if len(bounds) != 2 or any(bound is None or bound.deviations for bound in bounds):
            return parser.expected("two bounds, [low, high]", node, path)
        low, high = bounds
        units = low.units or high.units
        if {low.units, high.units} - {"", units}:
            return parser.reject(node, path, f"bounds in different units: {low.units!r} and {high.units!r}")
        if not low.value < high.value:
            what = f"the first bound, {display_value(node.value[0])}, is not below the second, {display_value(node.value[1])}"
            return parser.reject(node, path, what, "write [low, high]")
        sd = math.log(high.value / low.value) / 2 / normal_quantile(0.975)
        return UncertainValue(
            value=math.sqrt(low.value * high.value), units=units, deviations=(Deviation(sd, math.inf, source),)
        )

    def _converted(self, number: str, written: str, node: Located, path: str, parser: ValueParser) -> Any:
        """Return the number in the units of the dimension."""
        scale, units = _scaled(written)
        worth = self._worth(units)
        if not worth:
            known = ", ".join(self.dimension.worth).replace("*", "EUR") or "none"
            what = f"{display_value(node)}: its units are {known}" if units else f"{display_value(node)} has no unit"
            if units[:1] in _SCALES and self._worth(units[1:]):
                what = f"{display_value(node)}: {units[:1]} is separated from the unit"
                return parser.reject(node, path, what, f"write '{number} {units[:1]} {units[1:]}'")
            return parser.reject(node, path, what, f"write '{self.dimension.example}'")
        value = float(number) * scale * worth
        if not value and self.may_be_zero:
            return None
        if not value and not self.at_least:
            return parser.expected(self.expected, node, path, "leave the key out where there is none")
        if value > _MOST:
            return parser.expected(f"an amount of at most {_MOST:g}", node, path)
        if 0 < value < 1 / _MOST:
            return parser.expected(f"an amount of at least {1 / _MOST:g}", node, path)
        if value < 0 or not self.at_least <= value <= self.at_most:
            bounds = "" if self.at_most == _MOST and not self.at_least else f", from {self.at_least:g}"
            bounds += "" if self.at_most == _MOST else f" to {self.at_most:g}"
            return parser.expected(self.expected + bounds, node, path)
        currency = units.split("/")[0] if self.dimension.units.startswith("*") else ""
        return UncertainValue(
            value=value, units=self.dimension.units.replace("*", currency) if self.dimension.worth else units
        )

    def _worth(self, units: str) -> float:
        """Return the value of a unit in the dimension's units. 0 for an unknown unit."""
        if not self.dimension.worth:
            return 1.0
        money, slash, rest = units.partition("/")
        if self.dimension.units.startswith("*") and _CURRENCY.match(money):
            units = f"*{slash}{rest}"
        return self.dimension.worth.get(units, 0.0)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of an amount: a text, a number, or two bounds."""
        one = {"type": ["string", "number"]}
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 2, "maxItems": 2}]}


def _scaled(written: str) -> tuple[float, str]:
    """Return the factor of the first word, and the units: `k EUR` is a thousand EUR."""
    first, _, rest = written.partition(" ")
    return (_SCALES[first], rest.strip()) if first in _SCALES else (1.0, written)


Money: TypeAlias = Annotated[UncertainValue, Amount(MONEY)]
MoneyOrNone: TypeAlias = Annotated[UncertainValue | None, Amount(MONEY, may_be_zero=True)]
MoneyPerKwh: TypeAlias = Annotated[UncertainValue, Amount(MONEY_PER_KWH)]
PowerInKw: TypeAlias = Annotated[UncertainValue, Amount(POWER)]
PowerFactor: TypeAlias = Annotated[UncertainValue, Amount(SHARE, at_least=1.0)]
Years: TypeAlias = Annotated[UncertainValue, Amount(YEARS, at_most=100.0)]
PartOfOne: TypeAlias = Annotated[UncertainValue, Amount(SHARE, at_most=1.0)]
CarbonOfEnergy: TypeAlias = Annotated[UncertainValue, Amount(CARBON_OF_ENERGY)]
CarbonMass: TypeAlias = Annotated[UncertainValue, Amount(CARBON)]
Figure: TypeAlias = Annotated[UncertainValue, Amount(ANY)]
