"""Frozen dataclasses <-> JSON objects, both ways from a single declaration: the fields, and `JsonKey` where the two differ.

The format follows from the fields: keys in the order of the fields, unknown keys ignored, a missing key its field's default.
Nothing beyond the standard library, because these values are imported by commands that read no summary.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from milabench.analysis.lazy_list import LazyList
from milabench.events.shapes import Required, Shape
from milabench.events.values import finite_number

# `finite_number` for acceptance criteria, whose layer imports no events.
__all__ = [
    "JsonKey",
    "finite_number",
    "from_checked_value",
    "from_json_value",
    "picked",
    "schema_of_type",
    "shape_of_type",
    "to_json_value",
]

T = TypeVar("T")
_NO_FALLBACK = object()
_SCALARS = frozenset((str, int, float, bool, type(None)))


@dataclass(frozen=True, slots=True)
class JsonKey:
    """How a field's JSON differs from `field name: value`. It stands in the field's metadata, under `json`.

    `name` is the key. `fallback` replaces a missing value and a value outside a Literal. `write` makes the JSON.
    `is_read` false: the key is written and never read. `is_written` false: the field is in no JSON. `is_omitted` tells of the
    whole object whether the key is left out.
    `followed_by` are properties that are written after the field and never read.
    """

    name: str | None = None
    _: dataclasses.KW_ONLY
    fallback: object = _NO_FALLBACK
    write: Callable[[Any], Any] | None = None
    is_read: bool = True
    is_written: bool = True
    is_omitted: Callable[[Any], bool] | None = None
    followed_by: tuple[str, ...] = ()


def to_json_value(value: object) -> Any:
    """Return a value as JSON has it: dataclasses as objects, also those in mappings, and tuples as lists."""
    if type(value) in _SCALARS:  # nearly all are, and the tests below are slow
        return value
    if isinstance(value, list | tuple | LazyList):
        return [to_json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: own if type(own) in _SCALARS else to_json_value(own) for name, own in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    encoded: dict[str, Any] = {}
    kind: Any = type(value)
    for attribute, key in _keys(kind):
        if key.is_written and (key.is_omitted is None or not key.is_omitted(value)):
            own = getattr(value, attribute)
            encoded[key.name or attribute] = to_json_value(own) if key.write is None else key.write(own)
        encoded |= {name: to_json_value(getattr(value, name)) for name in key.followed_by}
    return encoded


def picked(value: object, *names: str) -> dict[str, Any]:
    """Return these attributes of a value as JSON has them."""
    return {name: to_json_value(getattr(value, name)) for name in names}


@cache
def _keys(kind: Any) -> tuple[tuple[str, JsonKey], ...]:
    return tuple((spec.name, spec.metadata.get("json") or JsonKey()) for spec in dataclasses.fields(kind))


def schema_of_type(hint: object) -> dict[str, Any]:
    """Return the JSON Schema of the result of `to_json_value` and `strict` for a value of this type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of_type(part) for part in parts]}
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is tuple and parts[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [schema_of_type(part) for part in parts], "minItems": len(parts)}
    if origin in (tuple, Sequence):
        return {"type": "array", "items": schema_of_type(parts[0])}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of_type(parts[1])}
    return _object_schema(hint) if dataclasses.is_dataclass(hint) else dict(_SCALAR_SCHEMAS.get(hint, {}))


def _object_schema(kind: object) -> dict[str, object]:
    hints, properties, required = get_type_hints(kind), dict[str, Any](), list[str]()
    for attribute, key in _keys(kind):
        own = {key.name or attribute: {} if key.write else schema_of_type(hints[attribute])} if key.is_written else {}
        own |= {name: schema_of_type(get_type_hints(getattr(kind, name).fget)["return"]) for name in key.followed_by}
        properties |= own
        required += own if key.is_omitted is None else ()
    return {"type": "object", "properties": properties, "required": required}


def shape_of_type(hint: object) -> Shape:
    """Return the shape (events/shapes.py) of the input of this type's readers. Only words of a Literal are any text."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return shape_of_type(next(part for part in parts if part is not type(None)))
    if origin is Literal:
        return str
    if origin in (tuple, Sequence):
        return [shape_of_type(parts[0])]
    if origin is not None and issubclass(origin, Mapping):
        return {} if parts[1] is Any else {str: Required(shape_of_type(parts[1]))}
    if not dataclasses.is_dataclass(hint):
        return object if hint is Any else hint
    hints, kind = get_type_hints(hint), cast("Any", hint)
    needed = {spec.name for spec in dataclasses.fields(kind) if _has_no_default(spec)}
    shapes = {attribute: shape_of_type(hints[attribute]) for attribute, *_ in _readers(kind)}
    return {
        name: Required(shapes[attribute])
        if attribute in needed and type(None) not in get_args(hints[attribute])
        else shapes[attribute]
        for attribute, name, *_ in _readers(kind)
    }


def from_json_value(kind: type[T], value: object) -> T:
    """Return the dataclass that this JSON describes. Raises KeyError, TypeError or ValueError when it is not."""
    encoded, values = _mapping(value), dict[str, Any]()
    for attribute, name, fallback, read in _readers(cast("Any", kind)):
        if name in encoded:
            values[attribute] = read(encoded[name])
        elif fallback is not _NO_FALLBACK:
            values[attribute] = fallback() if isinstance(fallback, _FromNothing) else fallback
    # What is missing and has no default is the constructor's to find: it names the key.
    try:
        return kind(**values)
    except TypeError as error:
        raise KeyError(str(error)) from None


def from_checked_value(kind: type[T], checked: object, **known: Any) -> T:
    """Return the dataclass whose JSON has these attributes, None for missing values. `known` values are not read.

    It is known to have the shape of its type, which has two fields or more, so its numbers and texts are not checked again.
    """
    values_of, readers = _checked_readers(cast("Any", kind))
    for own, (attribute, read) in zip(values_of(checked), readers, strict=True):
        if own is not None and attribute not in known:
            known[attribute] = own if read is None else read(own)
    return kind(**known)


@cache
def _checked_readers(
    kind: object,
) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[tuple[str, Callable[[Any], Any] | None], ...]]:
    hints, readers = get_type_hints(kind), _readers(kind)
    plain = tuple((attribute, None if _is_plain(hints[attribute]) else read) for attribute, _, _, read in readers)
    return attrgetter(*(name for _, name, *_ in readers)), plain


def _is_plain(hint: object) -> bool:
    """Return whether a value with the shape of a type is its final value."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return all(_is_plain(part) for part in parts if part is not type(None))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _is_plain(parts[1])
    return hint in _SCALAR_READERS


@dataclass(frozen=True, slots=True)
class _FromNothing:
    """The value of a required nested object that is missing: all of its defaults."""

    kind: type

    def __call__(self) -> Any:
        return from_json_value(self.kind, {})


@cache
def _readers(kind: Any) -> tuple[tuple[str, str, Any, Callable[[Any], Any]], ...]:
    hints, readers = get_type_hints(kind), []
    for spec in dataclasses.fields(kind):
        key: JsonKey = spec.metadata.get("json") or JsonKey()
        if not (key.is_read and key.is_written):
            continue
        fallback, hint = key.fallback, hints[spec.name]
        if fallback is _NO_FALLBACK and _has_no_default(spec) and dataclasses.is_dataclass(hint):
            fallback = _FromNothing(hint)  # type: ignore[arg-type]  # a type, as it is a hint
        readers.append((spec.name, key.name or spec.name, fallback, _reader(hint, key.fallback)))
    return tuple(readers)


def _has_no_default(spec: dataclasses.Field[object]) -> bool:
    return spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING


def _reader(hint: object, fallback: object = _NO_FALLBACK) -> Callable[[Any], Any]:
    """Return the function that reads a value of this type from JSON."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (part for part in parts if part is not type(None))
        return _optional_reader(inner)
    if origin is Literal:
        return lambda value: _one_of(parts, value, fallback)
    if origin in (tuple, Sequence):
        item = _reader(parts[0])
        length = None if origin is Sequence or parts[-1] is Ellipsis else len(parts)
        return lambda value: value if isinstance(value, LazyList) else tuple(map(item, _list(value, length)))
    if origin is not None and issubclass(origin, Mapping):
        item = _reader(parts[1])
        return lambda value: {name: item(own) for name, own in _mapping(value).items()}
    if dataclasses.is_dataclass(hint):
        return lambda value: from_json_value(hint, value)  # type: ignore[arg-type]
    return _SCALAR_READERS.get(hint, lambda value: value)


def _optional_reader(inner: object) -> Callable[[Any], Any]:
    if get_origin(inner) is Literal:
        return lambda value: _one_of(get_args(inner), value, None)
    read = _reader(inner)
    return lambda value: None if value is None else read(value)


def _one_of(words: tuple[object, ...], value: object, fallback: object) -> object:
    if value in words:
        return value
    if fallback is _NO_FALLBACK:
        raise ValueError(f"none of {', '.join(map(str, words))}: {value!r}")
    return fallback


def _list(value: object, length: int | None) -> list[object]:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise ValueError(f"expected a list{'' if length is None else f' of {length}'}, got {value!r}")
    return value


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping, got {value!r}")  # noqa: TRY004  as of every other wrong value
    return value


def _number(value: object) -> float:
    number = finite_number(value)
    if number is None:
        raise ValueError(f"expected a number, got {value!r}")
    return number


def _exactly(kind: type) -> Callable[[Any], Any]:
    """Return the function that reads a value of just this type: a bool is no int."""

    def read(value: object) -> Any:
        if type(value) is not kind or (isinstance(value, int) and abs(value) >= 2**63):
            raise ValueError(f"expected {kind.__name__}, got {value!r}")
        return value

    return read


# A number that is not finite is written as null.
_SCALAR_SCHEMAS: Mapping[object, Mapping[str, object]] = {
    float: {"type": ["number", "null"]},
    int: {"type": "integer"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
_SCALAR_READERS: Mapping[Any, Callable[[Any], Any]] = {
    float: _number,
    **{kind: _exactly(kind) for kind in (str, int, bool)},
}
