"""One line of a `.data` file <-> one Event; docs/protocol.md, section 4, and the lines that milabench 1.3 wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, assert_never, cast, get_args

from milabench.events.model import (
    Config,
    Data,
    End,
    Error,
    Event,
    Line,
    Message,
    Meta,
    Other,
    OutcomeName,
    Phase,
    Pipe,
    Start,
    Stop,
    Verdict,
    Why,
)

T = TypeVar("T")

_RECORD_KEYS = frozenset(("event", "data", "pipe", "t"))
# Tuples, not sets: what is looked up in them may be any JSON value, hashable or not.
_OUTCOMES = get_args(OutcomeName)
_WHYS = get_args(Why)
_PIPES = ("stdout", "stderr", "data", None)

# The pipe that a kind of record normally names; another one is kept in `extra`.
_PIPE_OF: Mapping[str, Pipe] = {
    "config": None,
    "meta": None,
    "start": None,
    "end": None,
    "phase": "data",
    "data": "data",
    "message": "data",
    "error": "data",
    "verdict": "data",
    "stop": "data",
}

# The one place where JSON text becomes values: a faster decoder goes here. It raises ValueError on what is not JSON.
parse_json: Callable[[str], Any] = json.loads


class NotARecordError(ValueError):
    """A line that is JSON but no record; a torn line is a plain ValueError of the decoder."""


def decode(line: bytes, step: str) -> Event:
    """The event that one line of `step`'s records says.

    A kind that is not known, or a known one whose payload has another shape, becomes `Other` and keeps everything.
    Raises ValueError when the line is no record: torn, not JSON, not an object with an event name.
    """
    record = parse_object(line)
    event = record.get("event")
    if not isinstance(event, str):
        raise NotARecordError("it has no event name")
    data = record.get("data")
    t = record.get("t")
    if (
        event == "data"
        and len(record) == 4
        and type(t) is float
        and type(data) is dict
        and record.get("pipe") == "data"
    ):
        return Data(step=step, t=t, data=data)
    return _decode_slowly(step, event, record)


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object on one line; raises ValueError when there is none, whatever the bytes are."""
    try:
        value = parse_json(line.decode("utf-8"))
    except RecursionError:
        raise NotARecordError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise NotARecordError("it is not a JSON object")
    return value


def parse_string(content: bytes) -> str:
    """The text that stands between the quotes of a JSON string; raises ValueError when that is not what stands there."""
    text = parse_json(f'"{content.decode("utf-8")}"')
    assert isinstance(text, str)
    return text


def encode(event: Event, t: float | None = None) -> bytes:
    """The line, with its line end, that says `event`; `t` (unix seconds) stands in for the event's own time when given.

    Strict JSON: a number that is not finite becomes null and its name is listed under `nonfinite` of the payload.
    """
    kind, payload, pipe = _taken_apart(event)
    extra = dict(event.extra)
    more = extra.pop("data", None)
    if isinstance(more, Mapping) and isinstance(payload, Mapping):
        payload = {**payload, **more}
    record = {"event": kind, "data": payload, "pipe": extra.pop("pipe", pipe), **extra}
    stamp = event.t if t is None else t
    if stamp is not None:
        record["t"] = stamp
    return dump(record) + b"\n"


def dump(record: Mapping[str, Any]) -> bytes:
    """Strict, compact, one-line JSON of a record; what is not finite becomes null and is named in its payload."""
    try:
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(_finite(record), separators=(",", ":"), allow_nan=False).encode()


def _decode_slowly(step: str, event: str, record: Mapping[str, Any]) -> Event:
    data = record.get("data")
    pipe = record.get("pipe")
    t = record.get("t")
    extra = {key: value for key, value in record.items() if key not in _RECORD_KEYS}
    if isinstance(t, bool) or not isinstance(t, int | float):
        if t is not None:
            extra["t"] = t
        t = None
    if event == "line" and isinstance(data, str) and pipe in _PIPES:
        return Line(step=step, t=t, extra=extra, text=data, pipe=pipe)
    if event in _PIPE_OF and isinstance(data, Mapping):
        if pipe != _PIPE_OF[event] and "pipe" in record:
            extra["pipe"] = pipe
        known = _known(step, t, extra, event, data)
        if known is not None:
            return known
    if pipe not in _PIPES:
        extra["pipe"] = pipe
        pipe = None
    else:
        extra.pop("pipe", None)
    return Other(step=step, t=t, extra=extra, event=event, data=data, pipe=pipe)


def _known(step: str, t: float | None, extra: dict[str, Any], event: str, data: Mapping[str, Any]) -> Event | None:
    """The event of a kind that we know, or None when its payload has not the shape that we know.

    Adds the payload's unknown keys to `extra`.
    """
    match event:
        case "config":
            return Config(step=step, t=t, extra=extra, data=data)
        case "meta":
            return Meta(step=step, t=t, extra=extra, data=data)
        case "start":
            return Start(step=step, t=t, extra=extra, data=data)
        case "data":
            return Data(step=step, t=t, extra=extra, data=data)
        case _:
            pass
    payload = dict(data)
    found: Event | None = None
    match event, payload:
        case "phase", {"name": str(name)}:
            _drop(payload, "name")
            found = Phase(step=step, t=t, extra=_with(extra, payload), name=name)
        case "message", {"message": str(text)}:
            _drop(payload, "message")
            found = Message(step=step, t=t, extra=_with(extra, payload), text=text)
        case "error", {"type": str(kind), "message": str(message)}:
            _drop(payload, "type", "message")
            trace = _take(payload, "trace", str, "")
            found = Error(step=step, t=t, extra=_with(extra, payload), type=kind, message=message, trace=trace)
        case "verdict", {"check": str(check), "verdict": "pass" | "warn" | "fail" as verdict}:
            _drop(payload, "check", "verdict")
            numbers: Mapping[str, Any] = _take(payload, "numbers", dict, {})
            text = _take(payload, "message", str, "")
            more = _with(extra, payload)
            found = Verdict(step=step, t=t, extra=more, check=check, verdict=verdict, numbers=numbers, message=text)
        case "stop", {"reason": str(reason)}:
            _drop(payload, "reason")
            found = Stop(step=step, t=t, extra=_with(extra, payload), reason=reason)
        case "end", _:
            found = _end(step, t, extra, payload)
        case _:
            pass
    return found


def _end(step: str, t: float | None, extra: dict[str, Any], payload: dict[str, Any]) -> End:
    code = payload.get("return_code")
    return_code = None if isinstance(code, bool) or not isinstance(code, int) else code
    if return_code is not None or code is None:
        _drop(payload, "return_code")
    outcome = payload.get("outcome")
    why = payload.get("why")
    if outcome in _OUTCOMES:
        _drop(payload, "outcome")
    else:  # milabench 1.3 wrote the return code only
        outcome = "passed" if return_code == 0 else "failed"
        if why is None and return_code:
            why = "signal" if return_code < 0 else "exit"
            payload["why"] = why
    if why is None or why in _WHYS:
        _drop(payload, "why")
    else:
        why = None
    command = payload.get("command")
    is_argv = isinstance(command, list) and all(isinstance(word, str) for word in command)
    if is_argv:
        _drop(payload, "command")
    time = payload.get("time")
    is_time = isinstance(time, int | float) and not isinstance(time, bool)
    if is_time or time is None:
        _drop(payload, "time")
    detail = _take(payload, "detail", str, "")
    return End(
        step=step,
        t=t,
        extra=_with(extra, payload),
        outcome=cast(OutcomeName, outcome),
        why=cast("Why | None", why),
        detail=detail,
        return_code=return_code,
        time=time if is_time else None,
        command=tuple(cast("list[str]", command)) if is_argv else (),
    )


def _take(payload: dict[str, Any], key: str, kind: type[T], default: T) -> T:
    """The value under `key`, removed from the payload when it is of the kind we know and says more than the default."""
    value = payload.get(key)
    if isinstance(value, kind):
        del payload[key]
        return value
    return default


def _drop(payload: dict[str, Any], *keys: str) -> None:
    for key in keys:
        payload.pop(key, None)


def _with(extra: dict[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    return {**extra, "data": payload} if payload else extra


def _taken_apart(event: Event) -> tuple[str, Any, Pipe]:
    """The record's event name, its payload, its pipe."""
    match event:
        case Config():
            return "config", event.data, None
        case Meta():
            return "meta", event.data, None
        case Start():
            return "start", event.data, None
        case Phase():
            return "phase", {"name": event.name}, "data"
        case Line():
            return "line", event.text, event.pipe
        case Data():
            return "data", event.data, "data"
        case Message():
            return "message", {"message": event.text}, "data"
        case Error():
            return "error", {"type": event.type, "message": event.message, "trace": event.trace}, "data"
        case Verdict():
            numbers = dict(event.numbers)
            payload = {"check": event.check, "verdict": event.verdict, "numbers": numbers, "message": event.message}
            return "verdict", payload, "data"
        case Stop():
            return "stop", {"reason": event.reason}, "data"
        case End():
            return "end", _end_payload(event), None
        case Other():
            return event.event, event.data, event.pipe
        case _:
            assert_never(event)


def _end_payload(end: End) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "command": list(end.command),
        "time": end.time,
        "return_code": end.return_code,
        "outcome": end.outcome,
    }
    if end.why is not None:
        payload["why"] = end.why
    if end.detail:
        payload["detail"] = end.detail
    return payload


def _finite(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with null for every number that is not finite; those of the payload are named in it."""
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
