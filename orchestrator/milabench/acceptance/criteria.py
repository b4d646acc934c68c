"""A criteria file (docs/reference/criteria.md) -> values; all mistakes in it are reported together, each with its location."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from milabench.config.problems import did_you_mean
from milabench.config.source_map import Located, SourceLocation, display_value
from milabench.config.yaml_reader import decode_text, parse_document
from milabench.errors import ConfigError, Problem

Quantity = Literal["rate", "system", "first_step", "memory_peak", "energy"]
QUANTITIES: tuple[Quantity, ...] = ("rate", "system", "first_step", "memory_peak", "energy")

_BOUND = re.compile(r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<rest>.*)\Z", re.DOTALL)
_REFERENCE = re.compile(r"(?:x|\*|×)\s*reference\Z")
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A number to reach or to stay below: in `units`, or times what the reference run did; `where` it is written."""

    value: float
    units: str = ""
    is_relative: bool = False
    where: str = ""

    def __str__(self) -> str:
        return f"{self.value:g} x reference" if self.is_relative else f"{self.value:g} {self.units}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCriteria:
    """The requirements for one benchmark; None where nothing is required.

    `of` is what `minimum` and `maximum` apply to. `device_spread` and `failure_rate` are shares, 0 to 1. `allow` are the
    reasons for doubt (docs/reference/protocol.md, section 5) in spite of which a number counts.
    """

    name: str
    where: str = ""
    is_required: bool = True
    of: Quantity = "rate"
    minimum: Bound | None = None
    maximum: Bound | None = None
    device_spread: float | None = None
    failure_rate: float | None = None
    energy: Bound | None = None
    allow: tuple[str, ...] = ()
    confidence: float | None = _CONFIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """A criteria file: the requirements for each benchmark, and of the run as a whole."""

    title: str
    file: str
    benchmarks: tuple[BenchCriteria, ...]
    failure_rate: float | None = None

    @property
    def is_relative(self) -> bool:
        """Whether a reference run is needed."""
        bounds = [
            bound for criteria in self.benchmarks for bound in (criteria.minimum, criteria.maximum, criteria.energy)
        ]
        return any(bound is not None and bound.is_relative for bound in bounds)


# key -> what it may be; the JSON schema (acceptance.schema.json) is made from this too
BOUND = {"type": "string", "pattern": r"^[-+]?[0-9.eE+-]+ *((x|\*|×) *reference|[^0-9].*)?$"}
SHARE = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^[0-9.]+ *%$"}]}
BENCH_KEYS: Mapping[str, Mapping[str, Any]] = {
    "required": {"type": "boolean", "description": "whether it must be in the run; default true"},
    "of": {"enum": list(QUANTITIES), "description": "what minimum and maximum speak of; default rate"},
    "minimum": {**BOUND, "description": "'800 items/s' or '1.2 x reference'"},
    "maximum": {**BOUND, "description": "the same, for what should be small"},
    "device_spread": {**SHARE, "description": "most spread between devices or nodes, relative"},
    "failure_rate": {**SHARE, "description": "most of its steps that may fail"},
    "energy": {**BOUND, "description": "most energy for an item: '0.4 J/image' or '0.9 x reference'"},
    "allow": {"type": "array", "items": {"type": "string"}, "description": "reasons for doubt that are accepted"},
    "confidence": {
        "anyOf": [{"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1}, {"const": "none"}],
        "description": "how sure a bound must be kept, one-sided; none: what was measured decides; default 0.95",
    },
}
FILE_KEYS = ("title", "defaults", "required", "failure_rate", "benchmarks")


def criteria_schema() -> dict[str, Any]:
    """Return the JSON schema of a criteria file, for editors."""
    bench = {"type": "object", "properties": {k: dict(v) for k, v in BENCH_KEYS.items()}, "additionalProperties": False}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "acceptance criteria of milabench",
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "defaults": {**bench, "description": "what every benchmark below starts from"},
            "required": {"type": "array", "items": {"type": "string"}, "description": "benchmarks that must pass"},
            "failure_rate": {**SHARE, "description": "most of all steps of the run that may fail"},
            "benchmarks": {"type": "object", "additionalProperties": {"anyOf": [bench, {"type": "null"}]}},
        },
        "additionalProperties": False,
    }


def parse_criteria(content: bytes, name: str) -> Criteria:
    """Return the criteria in a file's bytes. Raises ConfigError with every problem, each at `name:line:column`."""
    root = parse_document(decode_text(content, name), SourceLocation(name, "")).root
    reader = _Reader()
    criteria = reader.criteria(root, name)
    if reader.problems:
        raise ConfigError(reader.problems)
    return criteria


class _Reader:
    """Reads located values; errors are collected, and reading continues."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def criteria(self, root: Located, name: str) -> Criteria:
        given = self._mapping(root, "", FILE_KEYS)
        defaults = BenchCriteria(name="defaults")
        if "defaults" in given:
            defaults = self._bench(given["defaults"], "defaults", defaults)
        benches: dict[str, BenchCriteria] = {}
        for bench, node in (self._mapping(given["benchmarks"], "benchmarks") if "benchmarks" in given else {}).items():
            start = replace(defaults, name=bench, where=str(node.key or node.mark))
            benches[bench] = start if node.value is None else self._bench(node, f"benchmarks.{bench}", start)
        for node in self._list(given["required"], "required") if "required" in given else ():
            bench = self._text(node, "required")
            benches.setdefault(bench, replace(defaults, name=bench, where=str(node.mark)))
        rate = self._share(given["failure_rate"], "failure_rate") if "failure_rate" in given else None
        if not benches and rate is None and not self.problems:
            self._problem(root, "", "asks for nothing", "name benchmarks under 'benchmarks' or 'required'")
        title = self._text(given["title"], "title") if "title" in given else ""
        return Criteria(title=title, file=name, benchmarks=tuple(benches.values()), failure_rate=rate)

    def _bench(self, node: Located, path: str, start: BenchCriteria) -> BenchCriteria:
        """Return the criteria of one benchmark, over what they start from."""
        given = self._mapping(node, path, BENCH_KEYS)
        readers: Mapping[str, tuple[str, Callable[[Located, str], Any]]] = {
            "required": ("is_required", self._flag),
            "of": ("of", self._quantity),
            "minimum": ("minimum", self._bound),
            "maximum": ("maximum", self._bound),
            "device_spread": ("device_spread", self._share),
            "failure_rate": ("failure_rate", self._share),
            "energy": ("energy", self._bound),
            "allow": ("allow", self._reasons),
            "confidence": ("confidence", self._confidence),
        }
        values = {
            readers[key][0]: readers[key][1](child, f"{path}.{key}") for key, child in given.items() if key in readers
        }
        return replace(start, **values)

    def _mapping(self, node: Located, path: str, known: Any = None) -> dict[str, Located]:
        if type(node.value) is not dict:
            self._problem(node, path, f"expected a mapping, got {display_value(node)}")
            return {}
        for key, child in node.value.items():
            if known is not None and key not in known:
                self.problems.append(
                    Problem(
                        str(child.key or child.mark),
                        path,
                        f"unknown key {key!r}",
                        did_you_mean(key, known) or f"known are {', '.join(known)}",
                    )
                )
        return dict(node.value)

    def _list(self, node: Located, path: str) -> list[Located]:
        if type(node.value) is not list:
            self._problem(node, path, f"expected a list, got {display_value(node)}")
            return []
        return list(node.value)

    def _text(self, node: Located, path: str) -> str:
        if isinstance(node.value, str) and node.value:
            return node.value
        self._problem(node, path, f"expected text, got {display_value(node)}")
        return ""

    def _flag(self, node: Located, path: str) -> bool:
        if not isinstance(node.value, bool):
            self._problem(node, path, f"expected true or false, got {display_value(node)}")
        return bool(node.value)

    def _quantity(self, node: Located, path: str) -> Quantity:
        for known in QUANTITIES:
            if node.value == known:
                return known
        self._problem(node, path, f"expected one of {', '.join(QUANTITIES)}, got {display_value(node)}")
        return "rate"

    def _reasons(self, node: Located, path: str) -> tuple[str, ...]:
        return tuple(self._text(item, path) for item in self._list(node, path))

    def _share(self, node: Located, path: str) -> float | None:
        value, text = node.value, node.value if isinstance(node.value, str) else ""
        match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*%", text.strip())
        if match is not None:
            value = float(match[1]) / 100
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        self._problem(node, path, f"expected a share such as '3 %' or 0.03, got {display_value(node)}")
        return None

    def _confidence(self, node: Located, path: str) -> float | None:
        value = node.value
        if value == "none":
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0.5 < value < 1:
            return float(value)
        self._problem(node, path, f"expected a number between 0.5 and 1, or none; got {display_value(node)}")
        return None

    def _bound(self, node: Located, path: str) -> Bound | None:
        text = str(node.value) if isinstance(node.value, str | int | float) and not isinstance(node.value, bool) else ""
        match = _BOUND.match(text.strip())
        if match is None or float(match["number"]) <= 0:
            self._problem(node, path, f"expected such as '800 items/s' or '1.2 x reference', got {display_value(node)}")
            return None
        rest = match["rest"].strip()
        if not rest:
            self._problem(node, path, f"{display_value(node)} has no unit", "write '800 items/s' or '1.2 x reference'")
            return None
        is_relative = _REFERENCE.match(rest) is not None
        if not is_relative and "reference" in rest:
            self._problem(node, path, f"cannot be read: {display_value(node)}", "write '1.2 x reference'")
        return Bound(
            value=float(match["number"]),
            units="" if is_relative else rest,
            is_relative=is_relative,
            where=str(node.mark),
        )

    def _problem(self, node: Located, path: str, what: str, hint: str = "") -> None:
        self.problems.append(Problem(str(node.mark), path, what, hint))
