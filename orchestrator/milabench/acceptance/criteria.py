"""A criteria file (docs/reference/criteria.md) -> values; all mistakes in it are reported together, each with its location."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar, cast

from milabench.config.problems import Problems, did_you_mean
from milabench.config.source_map import Located, SourceLocation, display_value
from milabench.config.yaml_reader import decode_text, parse_document

T = TypeVar("T")
Quantity = Literal["rate", "system", "first_step", "memory_peak", "energy"]
QUANTITIES: tuple[Quantity, ...] = ("rate", "system", "first_step", "memory_peak", "energy")

_BOUND = re.compile(r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<rest>.*)\Z", re.DOTALL)
_REFERENCE = re.compile(r"(?:x|\*|×)\s*reference\Z")


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
    confidence: float | None = 0.95

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds that are asked for."""
        return tuple(bound for bound in (self.minimum, self.maximum, self.energy) if bound is not None)


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
        return any(bound.is_relative for bench in self.benchmarks for bound in bench.bounds)


def criteria_schema() -> dict[str, Any]:
    """Return the JSON schema of a criteria file, for editors."""
    properties = {name: {**key.schema, "description": key.doc} for name, key in BENCH_KEYS.items()}
    bench = {"type": "object", "properties": properties, "additionalProperties": False}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "acceptance criteria of milabench",
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "defaults": {**bench, "description": "what every benchmark below starts from"},
            "required": {"type": "array", "items": {"type": "string"}, "description": "benchmarks that must pass"},
            "failure_rate": {**_SHARE, "description": "most of all steps of the run that may fail"},
            "benchmarks": {"type": "object", "additionalProperties": {"anyOf": [bench, {"type": "null"}]}},
        },
        "additionalProperties": False,
    }


def parse_criteria(content: bytes, name: str) -> Criteria:
    """Return the criteria in a file's bytes. Raises ConfigError with every problem, each at `name:line:column`."""
    root = parse_document(decode_text(content, name), SourceLocation(name, "")).root
    reader = _Reader()
    criteria = reader.criteria(root, name)
    reader.problems.raise_any()
    return criteria


class _Reader:
    """Reads located values; errors are collected, and reading continues."""

    def __init__(self) -> None:
        self.problems = Problems()

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
        rate = self.share(given["failure_rate"], "failure_rate") if "failure_rate" in given else None
        if not benches and rate is None and not self.problems.by_fact:
            self.problems.note(root.mark, "", "asks for nothing", "name benchmarks under 'benchmarks' or 'required'")
        title = self._text(given["title"], "title") if "title" in given else ""
        return Criteria(title=title, file=name, benchmarks=tuple(benches.values()), failure_rate=rate)

    def _bench(self, node: Located, path: str, start: BenchCriteria) -> BenchCriteria:
        """Return the criteria of one benchmark, over what they start from."""
        given = self._mapping(node, path, BENCH_KEYS)
        return replace(
            start,
            **{
                BENCH_KEYS[key].field or key: BENCH_KEYS[key].read(self, child, f"{path}.{key}")
                for key, child in given.items()
                if key in BENCH_KEYS
            },
        )

    def _mapping(self, node: Located, path: str, known: Any = None) -> dict[str, Located]:
        if type(node.value) is not dict:
            return self._expected(node, path, "a mapping", {})
        for key, child in node.value.items():
            if known is not None and key not in known:
                hint = did_you_mean(key, known) or f"known are {', '.join(known)}"
                self.problems.note(child.key or child.mark, path, f"unknown key {key!r}", hint)
        return dict(node.value)

    def _list(self, node: Located, path: str) -> list[Located]:
        return list(node.value) if type(node.value) is list else self._expected(node, path, "a list", [])

    def _text(self, node: Located, path: str) -> str:
        is_text = isinstance(node.value, str) and node.value != ""
        return str(node.value) if is_text else self._expected(node, path, "text", "")

    def flag(self, node: Located, path: str) -> bool:
        return node.value if isinstance(node.value, bool) else self._expected(node, path, "true or false", False)

    def quantity(self, node: Located, path: str) -> Quantity:
        if node.value in QUANTITIES:
            return cast("Quantity", node.value)
        return self._expected(node, path, f"one of {', '.join(QUANTITIES)}", "rate")

    def reasons(self, node: Located, path: str) -> tuple[str, ...]:
        return tuple(self._text(item, path) for item in self._list(node, path))

    def share(self, node: Located, path: str) -> float | None:
        match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*%", node.value.strip()) if isinstance(node.value, str) else None
        value = node.value if match is None else float(match[1]) / 100
        if _is_number(value) and 0 <= value <= 1:
            return float(value)
        return self._expected(node, path, "a share such as '3 %' or 0.03", None)

    def confidence(self, node: Located, path: str) -> float | None:
        if node.value == "none":
            return None
        # At one half or below, a number that misses the bound would more likely pass than not.
        if _is_number(node.value) and 0.5 < node.value < 1:
            return float(node.value)
        self.problems.note(node.mark, path, f"expected a number between 0.5 and 1, or none; got {display_value(node)}")
        return None

    def bound(self, node: Located, path: str) -> Bound | None:
        text = str(node.value) if isinstance(node.value, str) or _is_number(node.value) else ""
        match = _BOUND.match(text.strip())
        if match is None or float(match["number"]) <= 0:
            return self._expected(node, path, "such as '800 items/s' or '1.2 x reference'", None)
        rest = match["rest"].strip()
        if not rest:
            self.problems.note(
                node.mark, path, f"{display_value(node)} has no unit", "write '800 items/s' or '1.2 x reference'"
            )
            return None
        is_relative = _REFERENCE.match(rest) is not None
        if not is_relative and "reference" in rest:
            self.problems.note(node.mark, path, f"cannot be read: {display_value(node)}", "write '1.2 x reference'")
        units = "" if is_relative else rest
        return Bound(value=float(match["number"]), units=units, is_relative=is_relative, where=str(node.mark))

    def _expected(self, node: Located, path: str, what: str, instead: T) -> T:
        """Note that a value is not what was expected; return the one that stands for it until the end of the file."""
        self.problems.note(node.mark, path, f"expected {what}, got {display_value(node)}")
        return instead


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Key(NamedTuple):
    """A key of a benchmark's criteria: how it is read, what it may be, and its field where that is called otherwise."""

    read: Callable[[_Reader, Located, str], Any]
    schema: Mapping[str, Any]
    doc: str
    field: str = ""


_NUMBER_OR_NONE = {"anyOf": [{"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1}, {"const": "none"}]}
_RELATIVE = {"type": "string", "pattern": r"^[-+]?[0-9.eE+-]+ *((x|\*|×) *reference|[^0-9].*)?$"}
_SHARE = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^[0-9.]+ *%$"}]}
_WORDS = {"type": "array", "items": {"type": "string"}}
# The parser and the JSON schema (acceptance.schema.json) are made from this.
BENCH_KEYS: Mapping[str, _Key] = {
    "required": _Key(_Reader.flag, {"type": "boolean"}, "whether it must be in the run; default true", "is_required"),
    "of": _Key(_Reader.quantity, {"enum": list(QUANTITIES)}, "what minimum and maximum speak of; default rate"),
    "minimum": _Key(_Reader.bound, _RELATIVE, "'800 items/s' or '1.2 x reference'"),
    "maximum": _Key(_Reader.bound, _RELATIVE, "the same, for what should be small"),
    "device_spread": _Key(_Reader.share, _SHARE, "most spread between devices or nodes, relative"),
    "failure_rate": _Key(_Reader.share, _SHARE, "most of its steps that may fail"),
    "energy": _Key(_Reader.bound, _RELATIVE, "most energy for an item: '0.4 J/image' or '0.9 x reference'"),
    "allow": _Key(_Reader.reasons, _WORDS, "reasons for doubt that are accepted"),
    "confidence": _Key(
        _Reader.confidence,
        _NUMBER_OR_NONE,
        "how sure a bound must be kept, one-sided; none: what was measured decides; default 0.95",
    ),
}
FILE_KEYS = ("title", "defaults", "required", "failure_rate", "benchmarks")
