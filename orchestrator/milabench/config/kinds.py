"""The kinds of values that a suite has: of each, what messages call it, how it is parsed, and its JSON Schema.

A config key is declared once, as a field of a frozen class (schema.py): `key(...)` gives its meaning and its default, the
annotation its kind. Everything else that knows the keys is derived from that by `record_of`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from milabench.config import expr
from milabench.config.problems import Problems, did_you_mean
from milabench.config.scalars import resolve_scalar
from milabench.config.source_map import Located, Mark, display_value, plain
from milabench.errors import ConfigError, Problem

Argument: TypeAlias = str | tuple[str, Any]
"""One verbatim argument, or an option and its value; placeholders are not resolved yet."""

INVALID: Final[Any] = object()
"""What parsing returns for a value whose problem has been noted."""

_METADATA: Final = "milabench.config"
_EXTRA: Final = "extra"
_INTERPOLATED: Final = {"type": "string", "pattern": r"[${]"}
_SCALAR_TYPES: Final = ("string", "number", "boolean")
_CAPACITY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGTP]?)(i?)([Bbo]?)\s*\Z")
_MIB: Final = 2**20


class ValueParser:
    """Parses located values by their kinds and notes their problems; what many benchmarks share is parsed once."""

    def __init__(self, problems: Problems, home: str) -> None:
        self.problems = problems
        self.home = home
        self.unresolved: set[str] = set()
        """Places whose interpolation failed; that has been reported, and what follows from it is not."""
        self._parsed: dict[tuple[int, int], tuple[Located, Any]] = {}

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

    def reject(self, node: Located, path: str, what: str, hint: str = "", mark: Mark | None = None) -> Any:
        """Note a problem with a value, at `mark` or at the value; return INVALID."""
        if str(node.mark) in self.unresolved:
            return INVALID
        old = next((before for before in node.replaced if type(before.value) not in (dict, list)), None)
        replaces = f"it replaces {display_value(old)}, set at {old.mark}" if old is not None else ""
        self.problems.add(Problem(where=str(mark or node.mark), path=path, what=what, hint=hint, replaces=replaces))
        return INVALID

    def expected(self, expected: str, node: Located, path: str, hint: str = "") -> Any:
        """Note that a value is not what was expected; return INVALID."""
        return self.reject(node, path, f"expected {expected}, got {display_value(node)}", hint)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Any plain value, and the base of all other kinds."""

    expected: str = "a value"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        """Return the value as this kind has it, or INVALID after noting the problem."""
        return plain(node)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of such a value."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Text(Kind):
    """Text; a number or a boolean is taken as the text that it was written with."""

    expected: str = "text"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        value = node.value
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value) if not isinstance(value, int) or value.bit_length() < 4096 else INVALID
        return parser.expected(self.expected, node, path)

    def json_schema(self) -> dict[str, Any]:
        return {"type": list(_SCALAR_TYPES)}


@dataclass(frozen=True, kw_only=True)
class FilePath(Text):
    """A path, relative to the file in which it is written."""

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        return INVALID if Text.parse(self, node, path, parser) is INVALID else path_at(node)


@dataclass(frozen=True, kw_only=True)
class Expression(Text):
    """A condition in the language of expr.py."""

    expected: str = "an expression"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        text = Text.parse(self, node, path, parser)
        if text is not INVALID:
            try:
                expr.check_expression(text, where=str(node.mark), path=path)
            except ConfigError as error:
                parser.problems.take(error)
                return INVALID
        return text


@dataclass(frozen=True, kw_only=True)
class Pattern(Text):
    """A regular expression."""

    expected: str = "a regular expression"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        text = Text.parse(self, node, path, parser)
        if text is not INVALID:
            try:
                re.compile(text)
            except (re.error, RecursionError, OverflowError) as error:
                return parser.reject(node, path, f"not a regular expression: {error}")
        return text


@dataclass(frozen=True, kw_only=True)
class Number(Kind):
    """A number; `above` excludes the bound itself."""

    expected: str = "a number"
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        node = _unformatted(node)
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124  not a number
            return parser.expected(self.expected, node, path)
        return self._bounded(value, node, path, parser)

    def _bounded(self, value: float, node: Located, path: str, parser: ValueParser) -> Any:
        if self.at_least is not None and value < self.at_least:
            return parser.expected(f"{self.expected} that is at least {self.at_least:g}", node, path)
        if self.at_most is not None and value > self.at_most:
            return parser.expected(f"{self.expected} that is at most {self.at_most:g}", node, path)
        if self.above is not None and value <= self.above:
            return parser.expected(f"{self.expected} above {self.above:g}", node, path)
        if value > 1e300:
            return parser.expected(f"{self.expected} below 1e300", node, path, "leave the key out for no limit")
        return value

    def json_schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.at_least, "exclusiveMinimum": self.above, "maximum": self.at_most}
        number = {"type": "number", **{name: bound for name, bound in bounds.items() if bound is not None}}
        return {"anyOf": [number, _INTERPOLATED]}


@dataclass(frozen=True, kw_only=True)
class Whole(Kind):
    """A whole number."""

    expected: str = "a whole number"
    at_least: int | None = None
    at_most: int | None = None

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        node = _unformatted(node)
        value = node.value
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return parser.expected(self.expected, node, path)
        if self.at_least is not None and value < self.at_least:
            return parser.expected(f"{self.expected} that is at least {self.at_least}", node, path)
        most = 2**53 if self.at_most is None else self.at_most
        if value > most:
            return parser.expected(f"{self.expected} that is at most {most}", node, path)
        return value

    def json_schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.at_least, "maximum": self.at_most}
        whole = {"type": "integer", **{name: bound for name, bound in bounds.items() if bound is not None}}
        return {"anyOf": [whole, _INTERPOLATED]}


@dataclass(frozen=True, kw_only=True)
class Flag(Kind):
    """True or false."""

    expected: str = "true or false"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        node = _unformatted(node)
        return node.value if isinstance(node.value, bool) else parser.expected(self.expected, node, path)

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, _INTERPOLATED]}


@dataclass(frozen=True, kw_only=True)
class Choice(Kind):
    """One of a few words."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "expected", "one of " + ", ".join(self.words))

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        value = node.value
        if not isinstance(value, str):
            return parser.expected(self.expected, node, path)
        # The reference suites also write per-gpu.
        word = value if value in self.words else value.replace("-", "_")
        if word in self.words:
            return word
        return parser.expected(self.expected, node, path, did_you_mean(value, self.words))

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(self.words)}, _INTERPOLATED]}


@dataclass(frozen=True, kw_only=True)
class Capacity(Kind):
    """An amount of memory in MiB: `80 GiB`, or a number of MiB."""

    expected: str = "an amount of memory such as 80 GiB"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        amount = capacity_mib(str(node.value)) if isinstance(node.value, str | int | float) else None
        return amount if amount is not None else parser.expected(self.expected, node, path)

    def json_schema(self) -> dict[str, Any]:
        return {"type": ["string", "number"]}


@dataclass(frozen=True, kw_only=True)
class ListOf(Kind):
    """A list; with `lone`, a value that is no list stands for a list of one. A `unique` list has each item once."""

    item: Kind
    expected: str = "a list"
    lone: bool = False
    unique: bool = False

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        value = node.value
        if type(value) is not list:
            if not self.lone or type(value) is dict or value is None:
                return parser.expected(self.expected, node, path)
            value = [node]
        items = [parser.parse(self.item, item, f"{path}.{index}") for index, item in enumerate(value)]
        if any(item is INVALID for item in items):
            return INVALID
        return tuple(dict.fromkeys(items) if self.unique else items)

    def json_schema(self) -> dict[str, Any]:
        item = self.item.json_schema()
        several = {"type": "array", "items": item}
        return {"anyOf": [several, item]} if self.lone else several


@dataclass(frozen=True, kw_only=True)
class MapOf(Kind):
    """A mapping with keys of the user's choice."""

    item: Kind
    expected: str = "a mapping"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is not dict:
            return parser.expected(self.expected, node, path)
        items = {key: parser.parse(self.item, child, f"{path}.{key}") for key, child in node.value.items()}
        return INVALID if any(item is INVALID for item in items.values()) else items

    def json_schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": {"anyOf": [self.item.json_schema(), {"type": "null"}]}}


@dataclass(frozen=True, kw_only=True)
class Arguments(Kind):
    """Command line arguments: a mapping from option to value, or a list taken verbatim."""

    expected: str = "a mapping of options or a list of arguments"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is list:
            return self._verbatim(node.value, path, parser)
        if type(node.value) is not dict:
            return parser.expected(self.expected, node, path)
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

    def _verbatim(self, items: list[Located], path: str, parser: ValueParser) -> Any:
        for index, item in enumerate(items):
            if _is_no_scalar(item):
                return parser.expected("an argument", item, f"{path}.{index}")
        return tuple(str(item.value) for item in items)

    def json_schema(self) -> dict[str, Any]:
        option = {"type": [*_SCALAR_TYPES, "null", "array"]}
        verbatim = {"type": "array", "items": {"type": list(_SCALAR_TYPES)}}
        return {"anyOf": [{"type": "object", "additionalProperties": option}, verbatim]}


def _is_no_scalar(node: Located) -> bool:
    return type(node.value) in (dict, list) or node.value is None


def _unformatted(node: Located) -> Located:
    """Return the value that was meant where a matrix put one into text: the number or flag that the text spells."""
    if node.formatted and isinstance(node.value, str):
        return Located(resolve_scalar(node.value.strip() or "~")[0], node.mark, node.replaced)
    return node


# --- records: mappings with known keys ------------------------------------------------------------------------------


def key(
    doc: str, *, default: Any = MISSING, name: str = "", alias: str = "", same_as: str = "", compare: bool = True
) -> Any:
    """Declare a config key: a dataclass field that suites may give. A key without a default has to be given.

    `name` is how suites write it where that is not the field's name, `alias` another way to write it; the value of
    the key `same_as` stands where it is not given. Where text may stand for the whole mapping, it is the value of the
    class's SHORTHAND.
    """
    metadata = {_METADATA: {"doc": doc, "name": name, "alias": alias, "same_as": same_as}}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, compare=compare, metadata=metadata)
    return dataclasses.field(default=default, compare=compare, metadata=metadata)


def extra_keys() -> Any:
    """Declare the field that takes every other key; a misspelled key of the class is still a problem."""
    return dataclasses.field(default_factory=dict, metadata={_METADATA: _EXTRA})


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a record, as its declaration has it; `default` is MISSING for a key that has to be given."""

    name: str
    field: str
    kind: Kind
    doc: str
    default: Any
    same_as: str = ""


@dataclass(frozen=True, kw_only=True)
class Record(Kind):
    """A mapping with known keys, parsed into a `cls`, or kept as a mapping where there is no class.

    `extra` is the field for all other keys, empty where these are problems. With `shorthand`, text stands for a mapping
    with nothing but that key.
    """

    keys: Mapping[str, Key]
    cls: type | None = None
    extra: str = ""
    shorthand: str = ""
    expected: str = "a mapping"

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The keys that have to be given."""
        return tuple(name for name, entry in self.keys.items() if entry.default is MISSING)

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
        for name, child in node.value.items():
            known = self.keys.get(name)
            if known is not None:
                if child.value is not None:
                    values[name] = parser.parse(known.kind, child, f"{path}.{name}")
            elif not self.extra or is_slip(name, self.keys, node.value):
                hint = did_you_mean(name, self.keys) or f"known: {', '.join(sorted(self.keys))}"
                parser.reject(child, path, f"unknown key {name!r}", hint)
            else:
                values[name] = plain(child)
        missing = [name for name in self.required if name not in values]
        for name in missing:
            parser.reject(node, path, f"the key {name!r} is missing")
        return INVALID if missing or any(value is INVALID for value in values.values()) else values

    def build(self, values: Mapping[str, Any], **others: Any) -> Any:
        """Return an instance of the class from the values of its keys; `more` are fields that are no keys."""
        if self.cls is None:
            return values
        fields = {entry.field: values[name] for name, entry in self.keys.items() if name in values}
        for entry in self.keys.values():
            if entry.same_as and entry.field not in fields and entry.same_as in values:
                fields[entry.field] = values[entry.same_as]
        if self.extra:
            fields[self.extra] = {name: value for name, value in values.items() if name not in self.keys}
        return self.cls(**fields, **others)

    def json_schema(self) -> dict[str, Any]:
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
        return {**record, "required": list(self.required)} if self.required else record


_APPEND_SCHEMA: Final = {
    "type": "object",
    "properties": {"append": {"type": "array"}},
    "required": ["append"],
    "additionalProperties": False,
}


class KeysOf:
    """Annotates a mapping that stays one, `Annotated[Mapping[str, Any], KeysOf(cls)]`, with the keys it may have."""

    def __init__(self, cls: type) -> None:
        self.cls = cls


_RECORDS: Final[dict[type, Record]] = {}
_SIMPLE: Final[Mapping[Any, Kind]] = {
    str: Text(),
    int: Whole(),
    float: Number(),
    bool: Flag(),
    Path: FilePath(),
    Any: Kind(),
}


def record_of(cls: type, *, is_mapping: bool = False) -> Record:
    """Return the record that a class declares; with `is_mapping` its values stay mappings."""
    if not is_mapping and cls in _RECORDS:
        return _RECORDS[cls]
    hints = get_type_hints(cls, include_extras=True)
    keys: dict[str, Key] = {}
    extra = ""
    for declared in dataclasses.fields(cls):
        metadata = declared.metadata.get(_METADATA)
        if metadata is None:
            continue
        if metadata == _EXTRA:
            extra = declared.name
            continue
        default = declared.default
        if declared.default_factory is not MISSING:
            default = declared.default_factory()
        name = metadata["name"] or declared.name
        entry = Key(
            name=name,
            field=declared.name,
            kind=kind_of(hints[declared.name]),
            doc=metadata["doc"],
            default=default,
            same_as=metadata["same_as"],
        )
        if alias := metadata["alias"]:
            # Before the key itself, so that the key wins where both are given.
            keys[alias] = dataclasses.replace(entry, name=alias, doc=f"Another name for {name}.")
        keys[name] = entry
    record = Record(keys=keys, cls=None if is_mapping else cls, extra=extra, shorthand=getattr(cls, "SHORTHAND", ""))
    if not is_mapping:
        _RECORDS[cls] = record
    return record


def kind_of(annotation: Any) -> Kind:
    """Return the kind of value that a type annotation stands for."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        (kind,) = annotation.__metadata__
        return record_of(kind.cls, is_mapping=True) if isinstance(kind, KeysOf) else kind
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
    match = _CAPACITY.match(text[:64])
    if match is None:
        return None
    number, prefix, binary, unit = match.groups()
    if not prefix and not unit:
        return int(float(number)) if not binary else None
    power = "kMGTP".index(prefix.replace("K", "k")) + 1 if prefix else 0
    return int(float(number) * (1024 if binary else 1000) ** power / _MIB)


def path_at(node: Located) -> Path:
    """Return the path that a text stands for, relative to the file in which it is written."""
    path = Path(str(node.value))
    return path if path.is_absolute() else _normalized(Path(node.mark.source.folder) / path)


def _normalized(path: Path) -> Path:
    """Return the path without `..`, as text: no link is followed, nothing is looked up."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] not in ("/", ".."):
            parts.pop()
        elif part != ".":
            parts.append(part)
    return Path(*parts) if parts else Path()


def is_slip(name: str, known: Iterable[str], given: Mapping[str, Any]) -> bool:
    """Return whether a key that is not known looks like a known one that is not given beside it."""
    missing = [key for key in known if key not in given]
    folded = name.lower().replace("-", "_")
    return folded in missing or any(_is_one_edit_away(folded, key) for key in missing if len(key) >= 4)


def _is_one_edit_away(name: str, known: str) -> bool:
    """Return whether one letter more, less, other or swapped with its neighbour makes the one of the other."""
    if abs(len(name) - len(known)) > 1 or name == known:
        return False
    start = 0
    while start < min(len(name), len(known)) and name[start] == known[start]:
        start += 1
    rest, wanted = name[start:], known[start:]
    is_swapped = len(rest) >= 2 and rest[1] + rest[0] + rest[2:] == wanted
    return is_swapped or rest[1:] == wanted[1:] or rest[1:] == wanted or rest == wanted[1:]
