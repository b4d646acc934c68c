"""Frozen dataclasses and structs -> JSON objects, and the JSON Schema of these, as their fields and `JsonKey` declare.

The format follows from the fields, in their order. What is written so is read by `events.stored_json`. Nothing beyond the
standard library, because these values are imported by commands that read no summary.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict

from milabench.events.values import finite_number

# `finite_number` for acceptance criteria, whose layer imports no events.
__all__ = ["NOT_WRITTEN", "OPTIONAL", "JsonKey", "finite_number", "picked", "schema_of_type", "to_json_value"]

_SCALARS = frozenset((str, int, float, bool, type(None)))


@dataclass(frozen=True, slots=True)
class JsonKey:
    """How a field's JSON differs from `field name: value`. It stands in the field's type: `Annotated[str, JsonKey("title")]`.

    `name` is the key. `write` makes the JSON. `is_written` false: the field is in no JSON. `is_optional`: the key is left
    out while the value is None, false or empty. `is_omitted` tells of the whole object whether the key is left out.
    `followed_by` are properties that are written after the field.
    """

    name: str | None = None
    _: dataclasses.KW_ONLY
    write: Callable[[Any], Any] | None = None
    is_written: bool = True
    is_optional: bool = False
    is_omitted: Callable[[Any], bool] | None = None
    followed_by: tuple[str, ...] = ()

    def leaves_out(self, owner: object, value: object) -> bool:
        """Return whether the key is not written for this value of an object."""
        if not self.is_written or (self.is_omitted is not None and self.is_omitted(owner)):
            return True
        return self.is_optional and (value is None or value is False or (isinstance(value, Sized) and not len(value)))


OPTIONAL = JsonKey(is_optional=True)
NOT_WRITTEN = JsonKey(is_written=False)


class _Field(NamedTuple):
    """A field as it is written: its attribute, its key in JSON, what that differs in."""

    attribute: str
    name: str
    key: JsonKey


def to_json_value(value: object) -> Any:
    """Return a value as JSON has it: dataclasses as objects, also those in mappings, and tuples as lists."""
    if type(value) in _SCALARS:  # nearly all are, and the tests below are slow
        return value
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: own if type(own) in _SCALARS else to_json_value(own) for name, own in value.items()}
    kind: Any = type(value)
    fields = _fields(kind)
    if fields is None:
        return value
    encoded: dict[str, Any] = {}
    for attribute, name, key in fields:
        own = getattr(value, attribute)
        if not key.leaves_out(value, own):
            encoded[name] = to_json_value(own) if key.write is None else key.write(own)
        encoded |= {name: to_json_value(getattr(value, name)) for name in key.followed_by}
    return encoded


def picked(value: object, /, *names: str, **paths: str) -> dict[str, Any]:
    """Return these attributes of a value as JSON has them. `paths` name attributes of attributes: `best="score.value"`.

    Null where there is None on the way.
    """
    return {
        key: to_json_value(_found(value, path)) for key, path in (dict(zip(names, names, strict=True)) | paths).items()
    }


def _found(value: object, path: str) -> object:
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


@cache
def _fields(kind: Any) -> tuple[_Field, ...] | None:
    """Return the fields of a dataclass or a struct. None for other types."""
    if dataclasses.is_dataclass(kind):
        names = {spec.name: spec.name for spec in dataclasses.fields(kind)}
    elif hasattr(kind, "__struct_fields__"):
        names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    else:
        return None
    hints = get_type_hints(kind, include_extras=True)
    extras = {name: getattr(hints[name], "__metadata__", ()) for name in names}
    keys = {name: next((extra for extra in extras[name] if isinstance(extra, JsonKey)), JsonKey()) for name in names}
    return tuple(_Field(name, keys[name].name or encoded, keys[name]) for name, encoded in names.items())


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
    if is_typeddict(hint):
        properties = {name: schema_of_type(own) for name, own in get_type_hints(hint).items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    fields = _fields(hint) if isinstance(hint, type) else None
    return dict(_SCALAR_SCHEMAS.get(hint, {})) if fields is None else _object_schema(hint, fields)


def _object_schema(kind: object, fields: Sequence[_Field]) -> dict[str, object]:
    hints, properties, required = get_type_hints(kind), dict[str, Any](), list[str]()
    for attribute, name, key in fields:
        own = {name: {} if key.write else schema_of_type(hints[attribute])} if key.is_written else {}
        own |= {name: schema_of_type(get_type_hints(getattr(kind, name).fget)["return"]) for name in key.followed_by}
        properties |= own
        required += own if key.is_omitted is None and not key.is_optional else ()
    return {"type": "object", "properties": properties, "required": required}


# A number that is not finite is written as null.
_SCALAR_SCHEMAS: Mapping[object, Mapping[str, object]] = {
    float: {"type": ["number", "null"]},
    int: {"type": "integer"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
