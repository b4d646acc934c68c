"""A line of a `.data` file (docs/reference/protocol.md, section 4, or as milabench 1.3 wrote it) <-> an Event.

The fields of an event say once how its record looks. Decoding and encoding both follow `_KINDS`, which is made from them.
The standard library's parser is used because records may hold values that strict parsers refuse (NaN, lone surrogates), and
it needs no import at start-up. The millions of observations of a run are read by `batch_decoder`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_args

from milabench.events import model
from milabench.events.model import End, Event, Line, Other, OutcomeName, Pipe, Recorded, VerdictName, Why
from milabench.events.values import finite_number, strict

_RECORD_KEYS = frozenset(("event", "data", "pipe", "t"))
_PIPES = ("stdout", "stderr", "data", None)

# Nothing that is recorded is nested deeper; what is would end whoever walks through it with Python's own limit.
MOST_DEPTH = 100
_parse = json.JSONDecoder().decode
_ESCAPE, _STRING = re.compile(rb"\\."), re.compile(rb'"[^"]*"')
_BESIDE_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))


class NotARecordError(ValueError):
    """A line that is JSON but no record. A torn line is a plain ValueError of the decoder."""


def _is_number(value: object) -> bool:
    """Return whether this is a number to count with: finite, and within all measure."""
    return finite_number(value) is not None


# By the annotation of an event's field: which values of its key are understood, and their JSON Schema. Of tuples, not sets:
# what is looked up in them may be any JSON value, hashable or not.
_ACCEPTS: Mapping[Any, tuple[Callable[[Any], bool], Mapping[str, Any]]] = {
    "str": (lambda value: isinstance(value, str), {"type": "string"}),
    "Mapping[str, Any]": (lambda value: isinstance(value, dict), {"type": "object"}),
    "tuple[str, ...]": (
        lambda value: isinstance(value, list) and all(isinstance(word, str) for word in value),
        {"type": "array", "items": {"type": "string"}},
    ),
    "float | None": (lambda value: value is None or _is_number(value), {"type": ["number", "null"]}),
    "int | None": (
        lambda value: value is None or (_is_number(value) and isinstance(value, int)),
        {"type": ["integer", "null"]},
    ),
    "VerdictName": (lambda value: value in get_args(VerdictName), {"enum": list(get_args(VerdictName))}),
    "OutcomeName": (lambda value: value in get_args(OutcomeName), {"enum": list(get_args(OutcomeName))}),
    "Why | None": (lambda value: value is None or value in get_args(Why), {"enum": [*get_args(Why), None]}),
}


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of a payload: the event's attribute that holds it, and which values are understood.

    A value that is not understood stays among the unknown keys. A key that is neither required nor in the payload leaves the
    attribute at its default.
    """

    attribute: str
    accepts: Callable[[Any], bool]
    schema: Mapping[str, Any]
    is_required: bool


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of record: its event, the pipe that it normally names, and the keys of its payload.

    Without `keys` the whole payload is the event's `data`.
    """

    event: type[Event]
    pipe: Pipe
    keys: Mapping[str, _Key]


def _kind(event: type[Event], pipe: Pipe) -> _Kind:
    """Return a kind whose payload has the keys that the fields of its event declare, in their order."""
    own = [spec for spec in fields(event) if spec.name not in ("data", *(common.name for common in fields(Recorded)))]
    keys = {
        # An end of milabench 1.3 has its return code only: see `_complete_end`.
        _NAMES.get(spec.name, spec.name): _Key(
            spec.name, *_ACCEPTS[spec.type], is_required=spec.default is MISSING and event is not End
        )
        for spec in own
    }
    return _Kind(event, pipe, keys)


# A key that is not called as its attribute, and the keys that are not written while they say nothing.
_NAMES = {"text": "message"}
_OMITTED = ("why", "detail", "host")
_KINDS: Mapping[str, _Kind] = {
    "config": _kind(model.Config, None),
    "meta": _kind(model.Meta, None),
    "start": _kind(model.Start, None),
    "data": _kind(model.Data, "data"),
    "phase": _kind(model.Phase, "data"),
    "message": _kind(model.Message, "data"),
    "error": _kind(model.Error, "data"),
    "verdict": _kind(model.Verdict, "data"),
    "stop": _kind(model.Stop, "data"),
    "end": _kind(End, None),
}
_KIND_OF: Mapping[type[Event], str] = {kind.event: name for name, kind in _KINDS.items()}


def record_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record as this version writes it. Kinds that are not known are any record."""
    payloads = {name: _payload_schema(kind) for name, kind in _KINDS.items()}
    payloads["line"] = {"type": "string"}
    return {
        "type": "object",
        "properties": {
            "event": {"description": "The kind of the record.", "examples": list(payloads), "type": "string"},
            "data": {"description": "Content of the event. Its keys depend on the kind."},
            "pipe": {"enum": list(_PIPES)},
            "t": {"description": "When the agent received it, unix seconds.", "type": "number"},
        },
        "required": ["event", "data"],
        "allOf": [
            {
                "if": {"properties": {"event": {"const": name}}, "required": ["event"]},
                "then": {"properties": {"data": payload}},
            }
            for name, payload in payloads.items()
        ],
    }


def _payload_schema(kind: _Kind) -> dict[str, Any]:
    properties = {name: dict(key.schema) for name, key in kind.keys.items()}
    required = [name for name, key in kind.keys.items() if key.is_required]
    return {
        "type": "object",
        **({"properties": properties} if properties else {}),
        **({"required": required} if required else {}),
    }


def decode(line: bytes, step: str) -> Event:
    """Return the event of a line of `step`'s records.

    An unknown kind, or a known kind whose payload has another shape, becomes `Other` and keeps everything.
    Raises ValueError when the line is no record: torn, not JSON, not an object with an event name.
    """
    record = parse_object(line)
    name, data, pipe, t = record.get("event"), record.get("data"), record.get("pipe"), record.get("t")
    if not isinstance(name, str):
        raise NotARecordError("it has no event name")
    extra = {key: value for key, value in record.items() if key not in _RECORD_KEYS}
    if not _is_number(t):
        if t is not None:
            extra["t"] = t
        t = None
    if name == "line" and isinstance(data, str) and pipe in _PIPES:
        return Line(step=step, t=t, extra=extra, text=data, pipe=pipe)
    kind = _KINDS.get(name)
    if kind is not None and isinstance(data, Mapping):
        has_own_pipe = pipe != kind.pipe and "pipe" in record
        event = _known_event(kind, step, t, {**extra, "pipe": pipe} if has_own_pipe else extra, data)
        if event is not None:
            return event
    if pipe not in _PIPES:
        extra["pipe"] = pipe
        pipe = None
    return Other(step=step, t=t, extra=extra, event=name, data=data, pipe=pipe)


def _known_event(
    kind: _Kind, step: str, t: float | None, extra: dict[str, Any], data: Mapping[str, object]
) -> Event | None:
    """Return the event of a kind, or None when its payload has another shape. Unknown keys are kept in `extra`."""
    build: Callable[..., Event] = kind.event
    if not kind.keys:
        return build(step=step, t=t, extra=extra, data=data)
    unknown, known = dict(data), dict[str, Any]()
    for name, key in kind.keys.items():
        if name in unknown and key.accepts(unknown[name]):
            known[key.attribute] = unknown.pop(name)
        elif key.is_required:
            return None
    if kind.event is End:
        _complete_end(known, data)
    return build(step=step, t=t, extra={**extra, "data": unknown} if unknown else extra, **known)


def _complete_end(known: dict[str, Any], data: Mapping[str, object]) -> None:
    """Add the parts of an end that milabench 1.3 did not write: it wrote the return code only."""
    known["command"] = tuple(known.get("command", ()))
    if "outcome" in known:
        return
    return_code = known.get("return_code")
    known["outcome"] = "passed" if return_code == 0 else "failed"
    if return_code and data.get("why") is None:
        known["why"] = "signal" if return_code < 0 else "exit"


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object on a line. Raises ValueError when there is none, for any bytes."""
    if is_too_deep(line):
        raise NotARecordError("it is nested too deeply")
    try:
        # Decoded here: given bytes, the parser guesses UTF-16 or UTF-32 from zero bytes.
        value = _parse(line.decode("utf-8"))
    except RecursionError:
        raise NotARecordError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise NotARecordError("it is not a JSON object")
    return value


def is_too_deep(line: bytes, most: int = MOST_DEPTH) -> bool:
    """Return whether lists and objects are nested deeper than `most`. Of other texts than JSON, nothing is said."""
    if line.count(b"[") + line.count(b"{") <= most:
        return False
    # A manifest has megabytes: nothing here looks at its bytes one by one.
    plain = _ESCAPE.sub(b"", line) if b"\\" in line else line
    # Two quotes beside each other are an empty text, or join two: what is left is within a text or not as before.
    brackets = plain.translate(None, _BESIDE_BRACKETS).replace(b'""', b"")
    brackets = _STRING.sub(b"", brackets)
    for _ in range(most):
        outer = brackets.replace(b"[]", b" ").replace(b"{}", b" ").replace(b" ", b"")  # of both kinds one level
        if len(outer) == len(brackets):
            return False
        brackets = outer
    return bool(brackets)


def parse_string(content: bytes) -> str:
    """Return the text between the quotes of a JSON string. Raises ValueError when it is no such content."""
    text = json.loads(f'"{content.decode("utf-8")}"')
    assert isinstance(text, str)
    return text


def encode(event: Event, t: float | None = None) -> bytes:
    """Return the line, with its line end, of an event. `t` (unix seconds) replaces the event's own time when given.

    Strict JSON: a number that is not finite becomes null and its name is listed under `nonfinite` of the payload.
    """
    name, payload, pipe = _kind_payload_pipe(event)
    extra = dict(event.extra)
    unknown = extra.pop("data", None)
    if isinstance(unknown, Mapping) and isinstance(payload, Mapping):
        payload = {**payload, **unknown}
    record = {"event": name, "data": payload, "pipe": extra.pop("pipe", pipe), **extra}
    stamp = event.t if t is None else t
    if stamp is not None:
        record["t"] = stamp
    return dump(record) + b"\n"


def _kind_payload_pipe(event: Event) -> tuple[str, Any, Pipe]:
    match event:
        case Line():
            return "line", event.text, event.pipe
        case Other():
            return event.event, event.data, event.pipe
        case model.Config() | model.Meta() | model.Start() | model.Data():
            name = _KIND_OF[type(event)]
            return name, event.data, _KINDS[name].pipe
        case _:
            name = _KIND_OF[type(event)]
            kind = _KINDS[name]
            values = {name: getattr(event, key.attribute) for name, key in kind.keys.items()}
            return name, {key: v for key, v in values.items() if v or key not in _OMITTED}, kind.pipe


def dump(record: Mapping[str, object]) -> bytes:
    """Return a record as strict, compact JSON on a line. Numbers that are not finite become null and are named in its payload."""
    try:
        # Nearly all records are finite; only one that is refused is walked through.
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(_finite(record), separators=(",", ":"), allow_nan=False).encode()


def _finite(record: Mapping[str, object]) -> dict[str, Any]:
    """Return the record with null for every number that is not finite. The payload names its own numbers."""
    cleaned: dict[str, Any] = {}
    for key, value in record.items():
        names: list[str] = []
        cleaned[key] = strict(value, key, names)
        if key == "data" and isinstance(value, Mapping) and names:
            listed = value.get("nonfinite")
            old = list(listed) if isinstance(listed, list) else []
            cleaned[key]["nonfinite"] = [*old, *(name for name in dict.fromkeys(names) if name not in old)]
    return cleaned
