"""The kinds of values that a suite has: the name that messages use, the parser and the JSON Schema of each.

A config key is declared once, as a field of a frozen class (schema.py): `key(...)` gives its meaning and its default, the
annotation its kind. Everything else that knows the keys is derived from that by `record_of`.
"""

from __future__ import annotations

import dataclasses
import operator
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from milabench.config import expr
from milabench.config.problems import Problems, UnplacedProblem, did_you_mean
from milabench.config.scalars import resolve_scalar
from milabench.config.source_map import Located, Mark, display_value, plain

Argument: TypeAlias = str | tuple[str, Any]
"""A verbatim argument, or an option and its value. Placeholders are not resolved yet."""

T = TypeVar("T")

INVALID: Final[Any] = object()
"""The result of parsing a value whose problem has been noted."""

_METADATA: Final = "milabench.config"
_EXTRA: Final = "extra"
_INTERPOLATED: Final = {"type": "string", "pattern": r"[${]"}
_SCALAR_TYPES: Final = ("string", "number", "boolean")
_CAPACITY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGTP]?)(i?)([Bbo]?)\s*\Z")
_PERCENT: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")
_MIB: Final = 2**20
_MAX_MIB: Final = 2**40
"""No machine has more than this, and nobody would read sums of such numbers."""


class ValueParser:
    """Parses located values by their kinds and notes their problems. Values that many benchmarks share are parsed once."""

    def __init__(self, problems: Problems, home: str) -> None:
        self.problems = problems
        self.home = home
        self.unresolved: set[str] = set()
        """Places whose interpolation failed. This has been reported. Problems that follow from it are not."""
        self._parsed: dict[tuple[int, int], tuple[Located, object]] = {}
        self._read: dict[tuple[object, Path], Any] = {}

    def parse(self, kind: Kind, node: Located, path: str) -> Any:
        """Return the value as its kind has it, or INVALID after noting the problem."""
        if type(node.value) is not dict and type(node.value) is not list:
            return kind.parse(node, path, self)
        memo = (id(node), id(kind))
        known = self._parsed.get(memo)
        if known is None:
            # The node is kept with its value, so that its id is not given to another one.
            known = self._parsed[memo] = (node, kind.parse(node, path, self))
        return known[1]

    def read_once(self, read: Callable[[Path], T], file: Path) -> T:
        """Return what `read` makes of a file that benchmarks name. It may raise ConfigError."""
        if (read, file) not in self._read:
            self._read[read, file] = read(file)
        content: T = self._read[read, file]
        return content

    def reject(self, node: Located, path: str, what: str, hint: str = "", mark: Mark | None = None) -> Any:
        """Note a problem with a value, at `mark` or at the value. Return INVALID."""
        if str(node.mark) in self.unresolved:
            return INVALID
        # Of a mapping or a list nothing short can be said.
        old = next((before for before in node.replaced if type(before.value) not in (dict, list)), None)
        replaces = f"it replaces {display_value(old)}, set at {old.mark}" if old is not None else ""
        self.problems.note(str(mark or node.mark), path, what, hint, replaces)
        return INVALID

    def expected(self, expected: str, node: Located, path: str, hint: str = "") -> Any:
        """Note that a value is not of the expected kind, and return INVALID."""
        return self.reject(node, path, f"expected {expected}, got {display_value(node)}", hint)


class Kind:
    """Any plain value, and the base of all other kinds."""

    # No kind is a dataclass: thirteen of them would cost 4 ms of each start, and nobody compares or prints kinds.
    expected: str = "a value"
    schema: Mapping[str, Any] = {}

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        """Return the value as this kind has it, or INVALID after noting the problem."""
        return plain(node)

    def json_schema(self) -> dict[str, object]:
        """Return the JSON Schema of such a value."""
        return dict(self.schema)


class Text(Kind):
    """Text. A number or a boolean is taken as it was written."""

    expected = "text"
    schema: Mapping[str, Any] = {"type": list(_SCALAR_TYPES)}

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        value = node.value
        if isinstance(value, str):
            return self.of_text(value, node, path, parser)
        if isinstance(value, bool):
            return self.of_text("true" if value else "false", node, path, parser)
        # Python refuses to print an integer of more than 4,300 digits.
        if isinstance(value, float) or (isinstance(value, int) and value.bit_length() < 4096):
            return self.of_text(str(value), node, path, parser)
        return INVALID if isinstance(value, int) else parser.expected(self.expected, node, path)

    def of_text(self, text: str, node: Located, path: str, parser: ValueParser) -> Any:
        """Return the value that a text is. INVALID after noting the problem."""
        return text


class Texts(Text):
    """Text, or a list of texts."""

    schema: Mapping[str, Any] = {
        "anyOf": [{"type": list(_SCALAR_TYPES)}, {"type": "array", "items": {"type": list(_SCALAR_TYPES)}}]
    }

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is not list:
            return super().parse(node, path, parser)
        texts = tuple(super(Texts, self).parse(item, f"{path}.{n}", parser) for n, item in enumerate(node.value))
        return INVALID if INVALID in texts else texts


class FilePath(Text):
    """A path, relative to the file in which it is written."""

    def of_text(self, text: str, node: Located, path: str, parser: ValueParser) -> Any:
        return path_at(node)


class Expression(Text):
    """A condition in the language of expr.py."""

    expected = "an expression"

    def of_text(self, text: str, node: Located, path: str, parser: ValueParser) -> Any:
        try:
            expr.check_expression(text)
        except UnplacedProblem as error:
            return parser.reject(node, path, str(error), error.hint)
        return text


class Pattern(Text):
    """A regular expression."""

    expected = "a regular expression"

    def of_text(self, text: str, node: Located, path: str, parser: ValueParser) -> Any:
        try:
            re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            return parser.reject(node, path, f"not a regular expression: {error}")
        return text


class Matching(Text):
    """Text that a regular expression describes whole. `expected` says it in words."""

    def __init__(self, *, pattern: str, expected: str) -> None:
        self.pattern = pattern
        self.expected = expected

    def of_text(self, text: str, node: Located, path: str, parser: ValueParser) -> Any:
        return text if re.fullmatch(self.pattern, text) else parser.expected(self.expected, node, path)


class Number(Kind):
    """A number. `above` excludes the bound itself."""

    expected = "a number"
    json_type = "number"
    # Past this no time limit or weight is meant, and products of two such numbers are infinite.
    limit: tuple[float, str, str] = (1e300, "below 1e300", "leave the key out for no limit")

    def __init__(
        self,
        *,
        expected: str = "",
        at_least: float | None = None,
        above: float | None = None,
        at_most: float | None = None,
    ) -> None:
        self.expected = expected or self.expected
        self.at_least, self.above, self.at_most = at_least, above, at_most
        bounds = (
            (at_least, operator.lt, "that is at least"),
            (at_most, operator.gt, "that is at most"),
            (above, operator.le, "above"),
        )
        self.bounds = tuple((bound, breaks, words) for bound, breaks, words in bounds if bound is not None)

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        node = _unformatted(node)
        value = self._number(node.value)
        if value is None:
            return parser.expected(self.expected, node, path)
        for bound, breaks, words in self.bounds:
            if breaks(value, bound):
                return parser.expected(f"{self.expected} {words} {bound}", node, path)
        most, words, hint = self.limit
        return value if value <= most else parser.expected(f"{self.expected} {words}", node, path, hint)

    def _number(self, value: Any) -> float | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if is_number and value == value else None  # noqa: PLR0124  nan is no number

    def json_schema(self) -> dict[str, object]:
        bounds = {"minimum": self.at_least, "exclusiveMinimum": self.above, "maximum": self.at_most}
        number = {"type": self.json_type, **{name: bound for name, bound in bounds.items() if bound is not None}}
        return {"anyOf": [number, _INTERPOLATED]}


class Whole(Number):
    """A whole number, also where it is written as 1e3."""

    expected = "a whole number"
    json_type = "integer"
    # Larger ones are not exact in JSON and in floats.
    limit = (2**53, f"that is at most {2**53}", "")

    def _number(self, value: object) -> int | None:
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            return int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


class Flag(Kind):
    """True or false."""

    expected = "true or false"
    schema: Mapping[str, Any] = {"anyOf": [{"type": "boolean"}, _INTERPOLATED]}

    def __init__(self, hint: str = "") -> None:
        self.hint = hint

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        node = _unformatted(node)
        return node.value if isinstance(node.value, bool) else parser.expected(self.expected, node, path, self.hint)


class Choice(Kind):
    """A word from a short list."""

    def __init__(self, *, words: Sequence[str], removed: Mapping[str, str] = MappingProxyType({})) -> None:
        self.words, self.removed = words, removed
        self.expected = "one of " + ", ".join(words)
        self.schema = {"anyOf": [{"enum": list(words)}, _INTERPOLATED]}

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        value = node.value
        if not isinstance(value, str):
            return parser.expected(self.expected, node, path)
        # The reference suites also write per-gpu.
        word = value if value in self.words else value.replace("-", "_")
        if word in self.words:
            return word
        return parser.expected(self.expected, node, path, self.removed.get(value) or did_you_mean(value, self.words))


class Capacity(Kind):
    """An amount of memory in MiB: `80 GiB`, or a number of MiB."""

    expected = "an amount of memory such as 80 GiB"
    schema: Mapping[str, Any] = {"type": ["string", "number"]}

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        amount = capacity_mib(str(node.value)) if isinstance(node.value, str | int | float) else None
        if amount is not None and amount > _MAX_MIB:
            return parser.expected(f"{self.expected}, at most 1 EiB", node, path)
        return amount if amount is not None else parser.expected(self.expected, node, path)


class ShareText(Kind):
    """A share between 0 and 1, or a percentage."""

    expected = "a share such as '3 %' or 0.03"
    schema: Mapping[str, Any] = {
        "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^[0-9.]+ *%$"}]
    }

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        match = _PERCENT.fullmatch(str(node.value).strip())
        value = node.value if match is None else float(match[1]) / 100
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and 0 <= value <= 1 else parser.expected(self.expected, node, path)


class Arithmetic(Kind):
    """A number above zero, or arithmetic that gives such a number, such as `6 * 1.1e9`."""

    expected = "a number above 0 and up to 1e30, or arithmetic such as 6 * 1.1e9"
    schema: Mapping[str, Any] = {"type": ["string", "number"]}

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        value = node.value
        if isinstance(value, str):
            try:
                value = expr.evaluate(value, {})
            except UnplacedProblem as error:
                return parser.reject(node, path, str(error), error.hint)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and 0 < value <= 1e30 else parser.expected(self.expected, node, path)


class ListOf(Kind):
    """A list. With `lone`, a value that is no list counts as a list of length 1.

    In a `unique` list equal items are merged. A `distinct` list must not have any.
    """

    def __init__(
        self, *, item: Kind, expected: str = "a list", lone: bool = False, unique: bool = False, distinct: bool = False
    ) -> None:
        self.item, self.expected, self.lone, self.unique, self.distinct = item, expected, lone, unique, distinct

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        value = node.value
        if type(value) is not list:
            if not self.lone or type(value) is dict or value is None:
                return parser.expected(self.expected, node, path)
            value = [node]
        items = [parser.parse(self.item, item, f"{path}.{index}") for index, item in enumerate(value)]
        if INVALID in items:
            return INVALID
        if (
            self.distinct
            and (again := next((i for i, item in enumerate(items) if item in items[:i]), None)) is not None
        ):
            return parser.reject(value[again], f"{path}.{again}", f"{items[again]} is there twice", "remove a copy")
        return tuple(dict.fromkeys(items) if self.unique else items)

    def json_schema(self) -> dict[str, Any]:
        item = self.item.json_schema()
        several = {"type": "array", "items": item}
        return {"anyOf": [several, item]} if self.lone else several


class MapOf(Kind):
    """A mapping with keys of the user's choice."""

    expected = "a mapping"

    def __init__(self, *, item: Kind) -> None:
        self.item = item

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is not dict:
            return parser.expected(self.expected, node, path)
        start = f"{path}." if path else ""
        items = {key: parser.parse(self.item, child, f"{start}{key}") for key, child in node.value.items()}
        return INVALID if INVALID in items.values() else items

    def json_schema(self) -> dict[str, object]:
        return {"type": "object", "additionalProperties": {"anyOf": [self.item.json_schema(), {"type": "null"}]}}


class KeySets(Kind):
    """A mapping whose keys are exactly one of several sets. `items` are the kinds of their values."""

    def __init__(self, *, sets: Sequence[tuple[str, ...]], items: Mapping[str, Kind], expected: str) -> None:
        self.sets, self.items, self.expected = sets, items, expected

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is not dict:
            return parser.expected(self.expected, node, path)
        values: dict[str, Any] = {}
        for name, child in node.value.items():
            if name not in self.items:
                return parser.reject(child, path, f"unknown key {name!r}", did_you_mean(name, self.items), child.key)
            values[name] = parser.parse(self.items[name], child, f"{path}.{name}")
        if INVALID in values.values():
            return INVALID
        if set(values) not in map(set, self.sets):
            return parser.expected(self.expected, node, path, f"it has {', '.join(values) or 'no key'}")
        return values

    def json_schema(self) -> dict[str, Any]:
        alternatives = [
            {
                "type": "object",
                "properties": {name: self.items[name].json_schema() for name in names},
                "required": list(names),
                "additionalProperties": False,
            }
            for names in self.sets
        ]
        return {"anyOf": alternatives}


class RecordsByName(MapOf):
    """Records of a class that has a field `name`, by names of the user's choice. Null gives none of its keys."""

    def __init__(self, cls: type) -> None:
        super().__init__(item=record_of(cls))

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is not dict:
            return parser.expected(self.expected, node, path)
        empty = {name: Located({}, child.mark) for name, child in node.value.items() if child.value is None}
        records = super().parse(Located({**node.value, **empty}, node.mark), path, parser)
        if records is INVALID:
            return INVALID
        return {name: dataclasses.replace(record, name=name) for name, record in records.items()}


class Arguments(Kind):
    """Command line arguments: a mapping from option to value, or a list taken verbatim."""

    expected = "a mapping of options or a list of arguments"
    schema: Mapping[str, Any] = {
        "anyOf": [
            {"type": "object", "additionalProperties": {"type": [*_SCALAR_TYPES, "null", "array"]}},
            {"type": "array", "items": {"type": list(_SCALAR_TYPES)}},
        ]
    }

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is list:
            for index, item in enumerate(node.value):
                if _is_no_scalar(item):
                    return parser.expected("an argument", item, f"{path}.{index}")
            return tuple(str(item.value) for item in node.value)
        if type(node.value) is not dict:
            return parser.expected(self.expected, node, path)
        # Pairs and not a mapping: after a merge, the order is what the program gets.
        pairs: list[Argument] = []
        for option, child in node.value.items():
            value = child.value
            if type(value) is dict:
                hint = "quote it, if it is meant as JSON"
                return parser.expected("a value or a list", child, f"{path}.{option}", hint)
            if type(value) is list:
                if any(_is_no_scalar(item) for item in value):
                    return parser.expected("a list of values", child, f"{path}.{option}")
                value = tuple(item.value for item in value)
            elif option == "--" and value is not None:
                value = (value,)
            pairs.append((option, value))
        return tuple(pairs)


def _is_no_scalar(node: Located) -> bool:
    return type(node.value) in (dict, list) or node.value is None


def _unformatted(node: Located) -> Located:
    """Return the intended value where a matrix put a value into text: the number or flag that the text spells."""
    if node.formatted and isinstance(node.value, str):
        return Located(resolve_scalar(node.value.strip() or "~")[0], node.mark, node.replaced)
    return node


# --- records: mappings with known keys ------------------------------------------------------------------------------


def key(
    doc: str, *, default: object = MISSING, name: str = "", alias: str = "", same_as: str = "", compare: bool = True
) -> Any:
    """Declare a config key: a dataclass field that suites may give. A key without a default has to be given.

    `name` is how suites write it where that is not the field's name, `alias` another way to write it. The value of
    the key `same_as` stands where it is not given. Where text may replace the whole mapping, it is the value of the
    class's SHORTHAND.
    """
    metadata = {_METADATA: {"doc": doc, "name": name, "alias": alias, "same_as": same_as}}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, compare=compare, metadata=metadata)
    return dataclasses.field(default=default, compare=compare, metadata=metadata)


def extra_keys() -> Any:
    """Declare the field that takes every other key. A misspelled key of the class is still a problem."""
    return dataclasses.field(default_factory=dict, metadata={_METADATA: _EXTRA})


class Key(NamedTuple):
    """A key of a record, as declared. `default` is MISSING for a required key."""

    name: str
    field: str
    kind: Kind
    doc: str
    default: Any
    same_as: str = ""


class Record(Kind):
    """A mapping with known keys, parsed into a `cls`, or kept as a mapping where there is no class.

    `extra` is the field for all other keys, empty where these are problems. With `shorthand`, text represents a mapping
    with nothing but that key.
    """

    expected = "a mapping"

    def __init__(self, keys: Mapping[str, Key], cls: type | None, *, extra: str = "", shorthand: str = "") -> None:
        self.keys, self.cls, self.extra, self.shorthand = keys, cls, extra, shorthand
        self.required = [name for name, entry in keys.items() if entry.default is MISSING]
        self.same_as = [entry for entry in keys.values() if entry.same_as]
        self.has_aliases = len({entry.field for entry in keys.values()}) < len(keys)

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if self.shorthand and type(node.value) not in (dict, list):
            value = parser.parse(self.keys[self.shorthand].kind, node, path)
            return INVALID if value is INVALID else self.build({self.shorthand: value})
        values = self.values(node, path, parser)
        return INVALID if values is INVALID else self.build(values)

    def values(self, node: Located, path: str, parser: ValueParser) -> Any:
        """Return the values of a mapping by key, or INVALID after noting its problems."""
        if type(node.value) is not dict:
            return parser.expected(self.expected, node, path)
        values: dict[str, Any] = {}
        start = f"{path}." if path else ""
        for name, child in node.value.items():
            known = self.keys.get(name)
            if known is not None:
                # null is as if the key were not there: so a benchmark takes back what its parent gives.
                if child.value is not None:
                    values[name] = parser.parse(known.kind, child, f"{start}{name}")
            elif not self.extra or is_slip(name, self.keys, node.value):
                hint = did_you_mean(name, self.keys) or f"known: {', '.join(sorted(self.keys))}"
                parser.reject(child, path, f"unknown key {name!r}", hint, child.key)
            else:
                values[name] = plain(child)
        missing = [name for name in self.required if name not in values]
        for name in missing:
            parser.reject(node, path, f"the key {name!r} is missing")
        return INVALID if missing or INVALID in values.values() else values

    def build(self, values: Mapping[str, object], **others: Any) -> Any:
        """Return an instance of the class from the values of its keys. `more` are fields that are no keys."""
        if self.cls is None:
            return values
        # In the order of the keys, where two are names of one field.
        given = self.keys if self.has_aliases else values
        fields = {self.keys[name].field: values[name] for name in given if name in values and name in self.keys}
        for entry in self.same_as:
            if entry.field not in fields and entry.same_as in values:
                fields[entry.field] = values[entry.same_as]
        if self.extra:
            fields[self.extra] = {name: value for name, value in values.items() if name not in self.keys}
        return self.cls(**fields, **others)

    def json_schema(self) -> dict[str, object]:
        record = self.mapping_schema()
        if not self.shorthand:
            return record
        return {"anyOf": [record, self.keys[self.shorthand].kind.json_schema()]}

    def mapping_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the mapping alone, without its shorthand."""
        properties = {}
        for name, entry in self.keys.items():
            schema = entry.kind.json_schema()
            if isinstance(entry.kind, ListOf | Arguments):
                schema = {"anyOf": [schema, _APPEND_SCHEMA]}
            properties[name] = {"description": entry.doc, "anyOf": [schema, {"type": "null"}]}
        record = {"type": "object", "properties": properties, "additionalProperties": bool(self.extra)}
        return {**record, "required": self.required} if self.required else record


_APPEND_SCHEMA: Final = {
    "type": "object",
    "properties": {"append": {"type": "array"}},
    "required": ["append"],
    "additionalProperties": False,
}


_SIMPLE: Final[Mapping[object, Kind]] = {
    str: Text(),
    int: Whole(),
    float: Number(),
    bool: Flag(),
    Path: FilePath(),
    Any: Kind(),
}


@cache
def record_of(cls: type, *, is_mapping: bool = False) -> Record:
    """Return the record that a class declares. With `is_mapping` its values stay mappings, and it is no dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    keys: dict[str, Key] = {}
    extra = ""
    for name, declared in getattr(cls, "__dataclass_fields__", vars(cls)).items():
        metadata = declared.metadata.get(_METADATA) if isinstance(declared, dataclasses.Field) else None
        if metadata == _EXTRA:
            extra = name
        elif metadata is not None:
            default = declared.default if declared.default_factory is MISSING else declared.default_factory()
            entry = Key(
                name=metadata["name"] or name,
                field=name,
                kind=kind_of(hints[name]),
                doc=metadata["doc"],
                default=default,
                same_as=metadata["same_as"],
            )
            if alias := metadata["alias"]:
                # Before the key itself, so that the key wins where both are given.
                keys[alias] = entry._replace(name=alias, doc=f"Another name for {entry.name}.")
            keys[entry.name] = entry
    return Record(keys, None if is_mapping else cls, extra=extra, shorthand=getattr(cls, "SHORTHAND", ""))


def keys_of(cls: type) -> Record:
    """Return the keys of a mapping that stays a mapping, for `Annotated[Mapping[str, Any], keys_of(cls)]`."""
    return record_of(cls, is_mapping=True)


def kind_of(annotation: Any) -> Kind:
    """Return the kind of value of a type annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        annotated: Kind = annotation.__metadata__[0]
        return annotated
    if origin is Literal:
        return Choice(words=arguments)
    if origin in (Union, UnionType):
        (only,) = (argument for argument in arguments if argument is not NoneType)
        return kind_of(only)
    if origin is tuple:
        item = kind_of(arguments[0])
        return ListOf(item=item, lone=not isinstance(item, Record))
    if annotation is not Any and origin is not None and issubclass(origin, Mapping):
        return MapOf(item=kind_of(arguments[1]))
    return _SIMPLE[annotation] if annotation in _SIMPLE else record_of(annotation)


# --- parts of parsing -----------------------------------------------------------------------------------------------


def capacity_mib(text: str) -> int | None:
    """Return an amount of memory in MiB: `GB` and `Go` are powers of ten, `GiB` and `Gio` of two, a bare number is MiB.

    None where the text is no amount.
    """
    # A number of a thousand digits would be infinite as a float.
    match = _CAPACITY.match(text[:64])
    if match is None:
        return None
    number, prefix, binary, unit = match.groups()
    if not prefix and not unit:
        return int(float(number)) if not binary else None
    power = "kMGTP".index(prefix.replace("K", "k")) + 1 if prefix else 0
    return int(float(number) * (1024 if binary else 1000) ** power / _MIB)


def path_at(node: Located) -> Path:
    """Return the path of a text, relative to the file in which it is written."""
    return _path_from(node.mark.source.folder, str(node.value))


@lru_cache(maxsize=1_024)  # thousands of benchmarks have one definition
def _path_from(folder: str, text: str) -> Path:
    path = Path(text)
    # No link is followed, nothing is looked up.
    return path if path.is_absolute() else Path(posixpath.normpath(Path(folder) / path))


def is_slip(name: str, known: Iterable[str], given: Mapping[str, object]) -> bool:
    """Return whether an unknown key looks like a known key that is not given next to it."""
    missing = [key for key in known if key not in given]
    folded = name.lower().replace("-", "_")
    return folded in missing or any(_is_one_edit_away(folded, key) for key in missing if len(key) >= 4)


def _is_one_edit_away(name: str, known: str) -> bool:
    """Return whether two words differ by a single letter: added, missing, other or swapped with its neighbour."""
    if abs(len(name) - len(known)) > 1 or name == known:
        return False
    start = len(posixpath.commonprefix([name, known]))
    rest, wanted = name[start:], known[start:]
    is_swapped = len(rest) >= 2 and rest[1] + rest[0] + rest[2:] == wanted
    return is_swapped or rest[1:] == wanted[1:] or rest[1:] == wanted or rest == wanted[1:]
