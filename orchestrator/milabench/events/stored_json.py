"""JSON -> a declared value, checked by msgspec; what does not fit is named with its place. Also the numbers of declarations.

msgspec takes tens of milliseconds to import: import this module where something is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from milabench.events.values import LARGEST_NUMBER, SMALLEST_NUMBER

_LARGEST_WHOLE = 2**63 - 1
Number = Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
NotNegative = Annotated[float, Meta(ge=0, le=LARGEST_NUMBER)]
AboveZero = Annotated[float, Meta(ge=SMALLEST_NUMBER, le=LARGEST_NUMBER)]
"""It can be divided by."""
Whole = Annotated[int, Meta(ge=-_LARGEST_WHOLE, le=_LARGEST_WHOLE)]
WholeOrFloat = Whole | Number
"""Of numbers that users give: a whole number stays one, and is shown and written again as it was read."""
Count = Annotated[int, Meta(ge=0, le=_LARGEST_WHOLE)]
_UNPRINTABLE = r"\x00-\x1f\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ud800-\uf8ff\ufeff"
FileName = Annotated[str, Meta(pattern=rf"^[^/{_UNPRINTABLE}]+(?![\s\S])")]
"""A file of the run, in the run's own folder."""

T = TypeVar("T")
Path = tuple[str | int, ...]

_SHOWN = 40  # characters of a value that is not as it should be
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_PART = re.compile(r"\.(?P<name>\w+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `(?P<kind>int \| float|\w+)[^`]*`(?:, got .*| (?P<limit>.*))?", re.DOTALL)
_KINDS = {
    "str": "a text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "int | float": "a number",
    "array": "a list",
    "object": "a mapping",
}


def from_json_value(kind: type[T], value: object) -> T:
    """Return the value of a kind that this JSON describes. Unknown keys are left out.

    Raises ValueError, with the place: `plan.steps.3.id is [], not a text`.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_refusal(kind, value, str(error))) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refusal(kind: Any, value: object, message: str) -> str:
    """Return in words why a value is none of a kind, for which msgspec gave this message."""
    path = _path(kind, value, message)
    match = _MESSAGE.fullmatch(message)
    assert match is not None, "it matches any text"
    what, place = match["what"], ".".join(map(str, path))
    if missing := _MISSING.fullmatch(what):
        return f"{place or 'it'} has no {missing[1]}"
    expected = _EXPECTED.fullmatch(what)
    actual = repr(_at(value, path))
    shown = actual if len(actual) <= _SHOWN else f"{actual[:_SHOWN]}..."
    if expected is None:
        return f"{place or 'it'} is {shown}, which is not known there"
    wanted, limit = _KINDS.get(expected["kind"], expected["kind"]), expected["limit"] or ""
    if limit.startswith("matching"):
        wanted, limit = "the name of a file", ""
    return f"{place or 'it'} is {shown}, not {wanted} {limit}".rstrip()


def _path(kind: Any, value: object, message: str) -> Path:
    """Return the place in a value that msgspec means. It names no keys of mappings with any keys: they are searched for."""
    match = _MESSAGE.fullmatch(message)
    path: Path = ()
    for part in _PART.finditer((match and match["path"]) or ""):
        if part["name"] is not None:
            path = (*path, part["name"])
        elif part["index"] is not None:
            path = (*path, int(part["index"]))
        else:
            path = (*path, _refused_key(kind, value, path, message))
    return path


def _refused_key(kind: Any, value: object, path: Path, message: str) -> str:
    """Return the key of a mapping in a value for which it is refused: with all others, half of them at a time, left out."""
    mapping: Mapping[str, object] = _at(value, path)
    keys = list(mapping)
    while len(keys) > 1:
        half = keys[: len(keys) // 2]
        is_among = _message_of(kind, _with(value, path, {key: mapping[key] for key in half})) == message
        keys = half if is_among else keys[len(half) :]
    return keys[0]


def _message_of(kind: Any, value: object) -> str:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value


def _with(value: Any, path: Path, other: object) -> object:
    """Return a copy of a value with another one in a place."""
    if not path:
        return other
    copied: Any = dict(value) if isinstance(value, Mapping) else list(value)
    copied[path[0]] = _with(value[path[0]], path[1:], other)
    return copied
