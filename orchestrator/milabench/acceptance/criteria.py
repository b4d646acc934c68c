"""A criteria file (docs/reference/criteria.md) -> values. All mistakes in it are reported together, each with its location.

Its keys are declared like a suite's (config/kinds.py): the parser and the JSON Schema come from the declarations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from milabench.analysis.serving_model import POINT_METRICS
from milabench.config.declared_file import declared_values
from milabench.config.kinds import (
    INVALID,
    Key,
    Kind,
    MapOf,
    Record,
    ShareText,
    ValueParser,
    Whole,
    key,
    keys_of,
    record_of,
)
from milabench.config.problems import did_you_mean
from milabench.config.source_map import Located, display_value
from milabench.errors import ConfigError, Problem

Quantity = Literal["rate", "system", "first_step", "memory_peak", "energy"]

_BOUND = re.compile(r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<rest>.*)\Z", re.DOTALL)
_REFERENCE = re.compile(r"(?:x|\*|×)\s*reference\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A number to reach or to stay below: in `units`, or times the reference run's number. `where` it is written."""

    value: float
    units: str = ""
    is_relative: bool = False
    where: str = ""

    def __str__(self) -> str:
        return f"{self.value:g} x reference" if self.is_relative else f"{self.value:g} {self.units}".rstrip()


class _BoundText(Kind):
    """A number and its unit, or times the reference.

    `units` are the only allowed ones, where the bounded quantity has its own.
    """

    schema: Mapping[str, Any] = {"type": "string", "pattern": r"^[-+]?[0-9.eE+-]+ *((x|\*|×) *reference|[^0-9].*)?$"}

    def __init__(self, units: str | None = None) -> None:
        self.units = units
        self.example = f"'{f'800 {units}'.rstrip()}'" if units is not None else "'800 items/s'"
        self.expected = f"such as {self.example} or '1.2 x reference'"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        match = _BOUND.match(str(node.value).strip())
        least = (
            0.0 if self.units == "" else 5e-324
        )  # only what has no unit can be bound to zero, such as a rate of errors
        if match is None or float(match["number"]) < least:
            return parser.expected(self.expected, node, path)
        rest, number = match["rest"].strip(), float(match["number"])
        if not rest and self.units != "":
            return parser.reject(
                node, path, f"{display_value(node)} has no unit", f"write {self.example} or '1.2 x reference'"
            )
        is_relative = _REFERENCE.match(rest) is not None
        if not is_relative and "reference" in rest:
            return parser.reject(node, path, f"cannot be read: {display_value(node)}", "write '1.2 x reference'")
        if self.units == "" and rest == "%":
            rest, number = "", number / 100
        if not is_relative and self.units is not None and rest != self.units:
            own = f"its units are {self.units}" if self.units else "it has no units"
            return parser.reject(node, path, f"{display_value(node)}: {own}", f"write {self.example}")
        units = "" if is_relative else rest
        return Bound(value=number, units=units, is_relative=is_relative, where=str(node.mark))

    def json_schema(self) -> dict[str, object]:
        return {"anyOf": [self.schema, {"type": "number", "minimum": 0}]} if self.units == "" else dict(self.schema)


class _Confidence(Kind):
    """A confidence level, or none."""

    expected = "a number between 0.5 and 1, or none"
    schema: Mapping[str, Any] = {
        "anyOf": [{"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1}, {"const": "none"}]
    }

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if node.value == "none":
            return None
        # At one half or below, a number that misses the bound would more likely pass than not.
        is_level = _is_number(node.value) and 0.5 < node.value < 1
        return float(node.value) if is_level else parser.expected(self.expected, node, path)


class _Names(Kind):
    """A list of names. No lone one, no empty one, and no `append`, for nothing is merged."""

    expected = "a list"
    schema: Mapping[str, Any] = {"type": "array", "items": {"type": "string"}}

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is not list:
            return parser.expected(self.expected, node, path)
        wrong = next((item for item in node.value if not isinstance(item.value, str) or not item.value), None)
        return tuple(item.value for item in node.value) if wrong is None else parser.expected("text", wrong, path)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCriterion:
    """The bounds of a number of a curve: of `metric` at a point of the sweep, or of the whole curve without a `point`."""

    point: str
    metric: str
    minimum: Bound | None = None
    maximum: Bound | None = None

    @property
    def name(self) -> str:
        """Its name in reports: the point and the metric."""
        return f"{self.point} {self.metric}".strip()


class _Bounds(Record):
    """The keys `minimum` and `maximum` of a number in these units, of which there is one at least."""

    def __init__(self, units: str) -> None:
        kind = _BoundText(units)
        super().__init__({name: Key(name, name, kind, f"its {name}", None) for name in ("minimum", "maximum")}, None)

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        given = super().parse(node, path, parser)
        return given or parser.reject(node, path, "asks for nothing", "give it a minimum or a maximum")


_POINT = re.compile(r"(concurrency|rate)=[0-9.eE+-]+|scenario=[a-z_]+")
_OF_POINT = Record(
    {name: Key(name, name, _Bounds(metric.units), metric.label, None) for name, metric in POINT_METRICS.items()}, None
)
_OF_CURVE = {"slo_concurrency": _Bounds(""), "slo_rate": _Bounds(""), "area": _Bounds("(tokens/s)^2")}


class _Curve(Kind):
    """The requirements on a sweep: bounds by point and metric, and of the whole curve."""

    expected = "a mapping of points such as 'concurrency=8' to metrics"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is not dict:
            return parser.expected(self.expected, node, path)
        found: list[tuple[str, str, Any]] = []
        for name, child in node.value.items():
            if name in _OF_CURVE:
                found.append(("", name, _OF_CURVE[name].parse(child, f"{path}.{name}", parser)))
            elif _POINT.fullmatch(name):
                metrics = _OF_POINT.parse(child, f"{path}.{name}", parser)
                if metrics is INVALID:
                    found.append(("", "", INVALID))
                    continue
                for metric, own in child.value.items():
                    # Records skip null, as suites want it. Here it is a bound that was forgotten, which is no mapping.
                    given = metrics.get(metric) or parser.expected(Record.expected, own, f"{path}.{name}.{metric}")
                    found.append((name, metric, given))
            else:
                hint = "" if "=" in name else did_you_mean(name, _OF_CURVE)
                hint = hint or f"name a point such as 'concurrency=8' or 'rate=2.5', or one of {', '.join(_OF_CURVE)}"
                found.append(("", "", parser.reject(child, path, f"unknown point {name!r}", hint, child.key)))
        if any(given is INVALID for _, _, given in found):
            return INVALID
        return tuple(ServingCriterion(point=point, metric=metric, **given) for point, metric, given in found)

    def json_schema(self) -> dict[str, object]:
        return {
            "type": "object",
            "properties": {name: kind.json_schema() for name, kind in _OF_CURVE.items()},
            "patternProperties": {f"^{_POINT.pattern}$": _OF_POINT.json_schema()},
            "additionalProperties": False,
        }


_Bounded = Annotated[Bound | None, _BoundText()]
_OptionalShare = Annotated[float | None, ShareText()]
_NameList = Annotated[tuple[str, ...], _Names()]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCriteria:
    """The requirements for a benchmark. None where nothing is required.

    `of` is the quantity that `minimum` and `maximum` limit. `device_spread` and `failure_rate` are shares, 0 to 1,
    `wrong` counts steps. `allow` are the warnings (docs/reference/protocol.md, section 5) in spite of which a number
    counts.
    """

    name: str
    where: str = ""
    is_required: bool = key("whether it must be in the run (default: true)", default=True, name="required")
    of: Quantity = key("quantity that minimum and maximum limit (default: rate)", default="rate")
    minimum: _Bounded = key("'800 items/s' or '1.2 x reference'", default=None)
    maximum: _Bounded = key("the same, for quantities that should be small", default=None)
    device_spread: _OptionalShare = key("most spread between devices or nodes, relative", default=None)
    failure_rate: _OptionalShare = key("most of its steps that may fail", default=None)
    wrong: Annotated[int, Whole(at_least=0)] = key(
        "most of its steps that may end with a wrong result (default: 0)", default=0
    )
    serving: Annotated[tuple[ServingCriterion, ...], _Curve()] = key(
        "bounds of a curve, by point and metric, and of slo_concurrency, slo_rate and area", default=()
    )
    energy: _Bounded = key("most energy for an item: '0.4 J/image' or '0.9 x reference'", default=None)
    allow: _NameList = key("warnings that are accepted", default=())
    confidence: Annotated[float | None, _Confidence()] = key(
        "one-sided confidence that a bound is kept (default: 0.95). none: the measured value decides", default=0.95
    )

    @property
    def of_quantities(self) -> tuple[tuple[str, Quantity, Bound], ...]:
        """The bounds of its quantities that are asked for: the criterion, the quantity, the bound."""
        bounded: tuple[tuple[str, Quantity, Bound | None], ...] = (
            ("minimum", self.of, self.minimum),
            ("maximum", self.of, self.maximum),
            ("energy", "energy", self.energy),
        )
        return tuple((name, quantity, bound) for name, quantity, bound in bounded if bound is not None)

    @property
    def of_curve(self) -> tuple[tuple[ServingCriterion, bool, Bound], ...]:
        """The bounds of its curve that are asked for: the number, whether the bound is a minimum, the bound."""
        return tuple(
            (one, is_minimum, bound)
            for one in self.serving
            for is_minimum, bound in ((True, one.minimum), (False, one.maximum))
            if bound is not None
        )


class _BenchKeys(Record):
    """The keys of a benchmark. Null requires only the `defaults`."""

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        return {} if node.value is None else super().parse(node, path, parser)


class FileKeys:
    """The keys of a criteria file."""

    title: str = key("heading of the report", default="")
    defaults: Annotated[Mapping[str, Any], keys_of(BenchCriteria)] = key(
        "criteria that every benchmark below inherits", default={}
    )
    required: _NameList = key("benchmarks that must pass", default=())
    failure_rate: _OptionalShare = key("most of all steps of the run that may fail", default=None)
    benchmarks: Annotated[Mapping[str, Any], MapOf(item=_BenchKeys(keys_of(BenchCriteria).keys, None))] = key(
        "criteria of each benchmark", default={}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """A criteria file: the requirements for each benchmark, and of the run as a whole."""

    title: str
    file: str
    benchmarks: tuple[BenchCriteria, ...]
    failure_rate: float | None = None

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """All bounds that are asked for."""
        return tuple(bound for bench in self.benchmarks for *_, bound in (*bench.of_quantities, *bench.of_curve))

    @property
    def is_relative(self) -> bool:
        """Whether a reference run is needed."""
        return any(bound.is_relative for bound in self.bounds)


def criteria_schema() -> dict[str, object]:
    """Return the JSON Schema of a criteria file, without its head."""
    return keys_of(FileKeys).json_schema()


def parse_criteria(content: bytes, name: str) -> Criteria:
    """Return the criteria in a file's bytes. Raises ConfigError with every problem, each at `name:line:column`."""
    root, given = declared_values(keys_of(FileKeys), content, name)
    # Where a benchmark is asked for: its key under `benchmarks`, else its item of `required`.
    marks = {item.value: item.mark for item in _children(root, "required", [])}
    marks |= {bench: node.key or node.mark for bench, node in _children(root, "benchmarks", {}).items()}
    own, defaults = given.get("benchmarks", {}), given.get("defaults", {})
    benches = tuple(
        record_of(BenchCriteria).build({**defaults, **own.get(bench, {})}, name=bench, where=str(marks[bench]))
        for bench in dict.fromkeys((*own, *given.get("required", ())))
    )
    rate = given.get("failure_rate")
    if not benches and rate is None:
        hint = "name benchmarks under 'benchmarks' or 'required'"
        raise ConfigError(Problem(str(root.mark), "", "asks for nothing", hint))
    return Criteria(title=given.get("title", ""), file=name, benchmarks=benches, failure_rate=rate)


def _children(root: Located, name: str, otherwise: object) -> Any:
    """Return the value of a key of the file, as it is written."""
    return (root.value[name].value if name in root.value else None) or otherwise
