"""One line of a `.data` file <-> one Event; docs/reference/protocol.md, section 4, and the lines that milabench 1.3 wrote.

`_KINDS` says once how each kind of record looks; decoding and encoding both follow it. The standard library's parser is
used because records may hold what strict parsers refuse (NaN, lone surrogates) and because it needs no import at start-up;
the millions of observations of a run are read by `batch_decoder`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from milabench.events import model
from milabench.events.model import End, Event, Line, Other, OutcomeName, Pipe, Why

_RECORD_KEYS = frozenset(("event", "data", "pipe", "t"))
# Tuples, not sets: what is looked up in them may be any JSON value, hashable or not.
_OUTCOMES = get_args(OutcomeName)
_WHYS = (None, *get_args(Why))
_VERDICTS = ("pass", "warn", "fail")
_PIPES = ("stdout", "stderr", "data", None)


class NotARecordError(ValueError):
    """A line that is JSON but no record; a torn line is a plain ValueError of the decoder."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_argv(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


@dataclass(frozen=True, slots=True)
class _Key:
    """One key of a payload: the event's attribute that holds it, and which values are understood.

    A value that is not understood stays among the unknown keys. A key that is neither required nor in the payload leaves the
    attribute at its default. `is_optional` keys are not written while they say nothing.
    """

    attribute: str
    accepts: Callable[[Any], bool] = _is_text
    is_required: bool = False
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of record: its event, the pipe that it normally names, and the keys of its payload.

    Without `keys` the whole payload is the event's `data`.
    """

    event: type[Event]
    pipe: Pipe
    keys: Mapping[str, _Key] = field(default_factory=dict)


_KINDS: Mapping[str, _Kind] = {
    "config": _Kind(model.Config, None),
    "meta": _Kind(model.Meta, None),
    "start": _Kind(model.Start, None),
    "data": _Kind(model.Data, "data"),
    "phase": _Kind(model.Phase, "data", {"name": _Key("name", is_required=True)}),
    "message": _Kind(model.Message, "data", {"message": _Key("text", is_required=True)}),
    "error": _Kind(
        model.Error,
        "data",
        {
            "type": _Key("type", is_required=True),
            "message": _Key("message", is_required=True),
            "trace": _Key("trace"),
        },
    ),
    "verdict": _Kind(
        model.Verdict,
        "data",
        {
            "check": _Key("check", is_required=True),
            "verdict": _Key("verdict", lambda value: value in _VERDICTS, is_required=True),
            "numbers": _Key("numbers", lambda value: isinstance(value, dict)),
            "message": _Key("message"),
        },
    ),
    "stop": _Kind(model.Stop, "data", {"reason": _Key("reason", is_required=True)}),
    "end": _Kind(
        End,
        None,
        {
            "command": _Key("command", _is_argv),
            "time": _Key("time", lambda value: value is None or _is_number(value)),
            "return_code": _Key(
                "return_code", lambda value: value is None or (_is_number(value) and isinstance(value, int))
            ),
            "outcome": _Key("outcome", lambda value: value in _OUTCOMES),
            "why": _Key("why", lambda value: value in _WHYS, is_optional=True),
            "detail": _Key("detail", is_optional=True),
        },
    ),
}
_KIND_OF: Mapping[type[Event], str] = {kind.event: name for name, kind in _KINDS.items()}


def decode(line: bytes, step: str) -> Event:
    """Return the event that one line of `step`'s records holds.

    A kind that is not known, or a known one whose payload has another shape, becomes `Other` and keeps everything.
    Raises ValueError when the line is no record: torn, not JSON, not an object with an event name.
    """
    record = parse_object(line)
    name, data, pipe, t = record.get("event"), record.get("data"), record.get("pipe"), record.get("t")
    if not isinstance(name, str):
        raise NotARecordError("it has no event name")
    if name == "data" and len(record) == 4 and type(t) is float and type(data) is dict and pipe == "data":
        return model.Data(step=step, t=t, data=data)  # what nearly all records are
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
    kind: _Kind, step: str, t: float | None, extra: dict[str, Any], data: Mapping[str, Any]
) -> Event | None:
    """Return the event of a kind, or None when its payload has another shape; unknown keys are kept in `extra`."""
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


def _complete_end(known: dict[str, Any], data: Mapping[str, Any]) -> None:
    """Add to an end what milabench 1.3 did not write: it wrote the return code only."""
    known["command"] = tuple(known.get("command", ()))
    if "outcome" in known:
        return
    return_code = known.get("return_code")
    known["outcome"] = "passed" if return_code == 0 else "failed"
    if return_code and data.get("why") is None:
        known["why"] = "signal" if return_code < 0 else "exit"


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object on one line. Raises ValueError when there is none, for any bytes."""
    try:
        value = json.loads(line.decode("utf-8"))
    except RecursionError:
        raise NotARecordError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise NotARecordError("it is not a JSON object")
    return value


def parse_string(content: bytes) -> str:
    """Return the text between the quotes of a JSON string. Raises ValueError when it is no such content."""
    text = json.loads(f'"{content.decode("utf-8")}"')
    assert isinstance(text, str)
    return text


def encode(event: Event, t: float | None = None) -> bytes:
    """Return the line, with its line end, of an event; `t` (unix seconds) replaces the event's own time when given.

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
            values = {key: getattr(event, spec.attribute) for key, spec in kind.keys.items()}
            return name, {key: v for key, v in values.items() if v or not kind.keys[key].is_optional}, kind.pipe


def dump(record: Mapping[str, Any]) -> bytes:
    """Return a record as strict, compact JSON on one line; what is not finite becomes null and is named in its payload."""
    try:
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(_finite(record), separators=(",", ":"), allow_nan=False).encode()


def _finite(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with null for every number that is not finite; those of the payload are named in it."""
    cleaned: dict[str, Any] = {}
    for key, value in record.items():
        names: list[str] = []
        cleaned[key] = _without_nonfinite(value, key, names)
        if key == "data" and isinstance(value, Mapping) and names:
            listed = value.get("nonfinite")
            old = list(listed) if isinstance(listed, list) else []
            cleaned[key]["nonfinite"] = [*old, *(name for name in dict.fromkeys(names) if name not in old)]
    return cleaned


def _without_nonfinite(value: Any, name: str, names: list[str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        names.append(name)
        return None
    if isinstance(value, Mapping):
        return {key: _without_nonfinite(item, str(key), names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nonfinite(item, name, names) for item in value]
    return value
