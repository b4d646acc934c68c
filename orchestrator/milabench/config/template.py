"""Text with fields in braces, `bs{batch-size}` or `{system[nodes][0][ip]}`: found, not evaluated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

# A field is a name with steps into it. Everything else in braces, such as {"image": 10}, is text; so are doubled braces,
# and `${...}`, which belongs to OmegaConf or to whatever reads the text later.
_FIELD: Final = re.compile(
    r"\{\{|(?<!\$)\{(?P<name>[A-Za-z_*][\w*-]*)(?P<steps>(?:\[[^\[\]{}]*\]|\.[\w-]+)*)"
    r"(?::(?P<spec>[^{}\[\]\"'/\\]{0,16}))?\}"
)
_STEP: Final = re.compile(r"\[([^\[\]{}]*)\]|\.([\w-]+)")
_SPEC: Final = re.compile(r"[<>=^]?[-+ ]?#?0?\d{0,3}[,_]?(?:\.\d{1,2})?[bcdeEfFgGnosxX%]?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field: its name, the steps into that value, a format as in `{x:03d}`, and the text as it was written."""

    name: str
    steps: tuple[str, ...]
    spec: str
    text: str


Part: TypeAlias = str | Field


class FieldError(LookupError):
    """A field whose value is missing: `name` was looked for, `known` are the names at that point."""

    def __init__(self, field: Field, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{field.text} cannot be resolved")
        self.field = field
        self.name = name
        self.known = known


@lru_cache(maxsize=16_384)
def parts(text: str) -> tuple[Part, ...]:
    """Return the text and the fields that it is made of, in order. Doubled braces are still doubled."""
    pieces: list[Part] = []
    position = 0
    for match in _FIELD.finditer(text):
        if match[0] == "{{" or not _SPEC.match(match["spec"] or ""):
            continue
        if match.start() > position:
            pieces.append(text[position : match.start()])
        steps = tuple(first or second for first, second in _STEP.findall(match["steps"]))
        pieces.append(Field(name=match["name"], steps=steps, spec=match["spec"] or "", text=match[0]))
        position = match.end()
    if position < len(text):
        pieces.append(text[position:])
    return tuple(pieces)


def value_of(field: Field, names: Mapping[str, object]) -> object:
    """Return the value of a field. Raises FieldError."""
    if field.name not in names:
        raise FieldError(field, field.name, tuple(names))
    value = names[field.name]
    for step in field.steps:
        if isinstance(value, Mapping):
            if step not in value:
                raise FieldError(field, step, tuple(str(key) for key in value))
            value = value[step]
        elif isinstance(value, Sequence) and not isinstance(value, str) and step.lstrip("-").isdigit():
            # No list is that long, and int() refuses thousands of digits.
            index = int(step[:9])
            if not -len(value) <= index < len(value):
                raise FieldError(field, step, tuple(str(number) for number in range(min(len(value), 8))))
            value = value[index]
        else:
            raise FieldError(field, step, ())
    return value


def text_of(field: Field, value: object) -> str:
    """Return a field's value as text. Raises ValueError where its format does not suit the value."""
    if not field.spec:
        return str(value)
    try:
        return format(value, field.spec)
    except TypeError as error:
        raise ValueError(str(error)) from None


def unescaped(text: str) -> str:
    """Return literal text with `{{` and `}}` as single braces.

    A `}}` that closes single braces opened before it, as in {"a": {"b": 1}}, is two closing braces.
    """
    if "{{" not in text and "}}" not in text:
        return text
    pieces: list[str] = []
    single = 0
    position = 0
    while position < len(text):
        here = text[position]
        pair = text[position : position + 2]
        if pair == "{{" or (pair == "}}" and single == 0):
            pieces.append(here)
            position += 2
            continue
        if here == "{":
            single += 1
        elif here == "}" and single:
            single -= 1
        pieces.append(here)
        position += 1
    return "".join(pieces)
