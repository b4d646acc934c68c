from __future__ import annotations

import json
import math
import random
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.events import wire
from milabench.events.model import (
    Config,
    Data,
    End,
    Error,
    Line,
    Message,
    Meta,
    Other,
    Phase,
    Start,
    Stop,
    Verdict,
)
from milabench.events.wire import MOST_DEPTH, parse_object

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
mappings = st.dictionaries(st.text(), json_values, max_size=4)
times = st.none() | st.floats(0, 4e9)
texts = st.text()

PAYLOAD_KEYS = ("name", "message", "type", "trace", "check", "verdict", "reason", "outcome", "command", "time")

base: dict[str, Any] = {"step": st.just("digits.D0"), "t": times}
events = st.one_of(
    *(st.builds(kind, **base, data=mappings) for kind in (Config, Meta, Start, Data)),
    st.builds(Phase, **base, name=texts),
    st.builds(Line, **base, text=texts, pipe=st.sampled_from(["stdout", "stderr", "data", None])),
    st.builds(Message, **base, text=texts),
    st.builds(Error, **base, type=texts, message=texts, trace=texts),
    st.builds(
        Verdict,
        **base,
        check=texts,
        verdict=st.sampled_from(["pass", "warn", "fail"]),
        numbers=mappings,
        message=texts,
    ),
    st.builds(Stop, **base, reason=texts),
    st.builds(
        End,
        **base,
        outcome=st.sampled_from(["passed", "failed", "skipped", "cancelled", "missing"]),
        why=st.none() | st.sampled_from(["exit", "lost-node", "no-data"]),
        detail=texts,
        return_code=st.none() | st.integers(-64, 255),
        time=times,
        command=st.lists(texts).map(tuple),
    ),
    st.builds(
        Other,
        **base,
        event=st.just("weather"),
        data=json_values,
        pipe=st.sampled_from(["stdout", "stderr", "data", None]),
    ),
)
records = st.fixed_dictionaries(
    {
        "event": st.sampled_from(
            [
                "config",
                "meta",
                "start",
                "phase",
                "line",
                "data",
                "message",
                "error",
                "verdict",
                "stop",
                "end",
                "weather",
            ]
        ),
        "data": json_values
        | st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(PAYLOAD_KEYS, json_values | texts),
        ),
        "pipe": st.sampled_from(["stdout", "stderr", "data", None]) | json_values,
    },
    optional={"t": st.floats(0, 4e9) | json_values, "seq": json_values},
)


def line(**record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


@given(events)
def test_what_is_written_is_read_back(event: Any) -> None:
    assert wire.decode(wire.encode(event), event.step) == event


@given(records)
def test_a_record_of_any_shape_that_is_read_and_written_loses_nothing(record: dict[str, Any]) -> None:
    written = json.loads(wire.encode(wire.decode(line(**record), "s")))
    if isinstance(record["data"], dict):
        written["data"] = {key: written["data"][key] for key in record["data"]}  # defaults may be written out
    assert {"t": None, **written} == {"t": None, **record}


@given(st.binary(max_size=80))
def test_any_bytes_are_an_event_or_a_value_error(noise: bytes) -> None:
    with suppress(ValueError):
        wire.decode(noise, "s")


@given(events)
def test_an_encoded_event_is_one_line(event: Any) -> None:
    assert wire.encode(event).endswith(b"}\n")
    assert wire.encode(event).count(b"\n") == 1


def test_an_unknown_kind_is_kept_untouched() -> None:
    record = {"event": "weather", "data": [1, {"rain": None}], "pipe": "data", "t": 3.5, "seq": 7}
    event = wire.decode(line(**record), "s")
    assert event == Other(step="s", t=3.5, event="weather", data=[1, {"rain": None}], pipe="data", extra={"seq": 7})
    assert json.loads(wire.encode(event)) == record


def test_an_unknown_key_of_a_known_kind_is_kept() -> None:
    record = {"event": "phase", "data": {"name": "init", "rank": 3}, "pipe": "data", "t": 1.0}
    event = wire.decode(line(**record), "s")
    assert event == Phase(step="s", t=1.0, name="init", extra={"data": {"rank": 3}})
    assert json.loads(wire.encode(event)) == record


def test_a_known_kind_of_another_shape_is_kept_as_it_is() -> None:
    event = wire.decode(line(event="stop", data=None, pipe="data"), "s")
    assert event == Other(step="s", event="stop", data=None, pipe="data")
    lacking = {"check": "gpu", "verdict": "pass"}
    event = wire.decode(json.dumps({"event": "verdict", "data": lacking, "pipe": "data"}).encode(), "s")
    assert event == Other(step="s", event="verdict", data=lacking, pipe="data")


def test_the_time_given_to_encode_stands_in_for_the_events_own() -> None:
    assert json.loads(wire.encode(Message(step="s", t=1.0, text="hello"), t=2.5))["t"] == 2.5


def test_a_number_that_is_not_finite_becomes_null_and_is_named() -> None:
    written = json.loads(wire.encode(Data(step="s", data={"task": "train", "loss": math.nan, "rate": 1.0})))
    assert written["data"] == {"task": "train", "loss": None, "rate": 1.0, "nonfinite": ["loss"]}


def test_a_line_of_milabench_1_3_has_no_time() -> None:
    event = wire.decode(line(event="data", data={"rate": 12.5, "task": "train"}, pipe="data"), "s")
    assert event == Data(step="s", data={"rate": 12.5, "task": "train"})


@pytest.mark.parametrize(
    ("return_code", "outcome", "why"), [(0, "passed", None), (1, "failed", "exit"), (-9, "failed", "signal")]
)
def test_the_end_of_a_milabench_1_3_step_gets_its_outcome_from_the_return_code(
    return_code: int, outcome: str, why: str | None
) -> None:
    data = {"command": ["voir", "main.py"], "time": 12.0, "return_code": return_code}
    event = wire.decode(line(event="end", data=data, pipe=None), "s")
    assert isinstance(event, End)
    assert (event.outcome, event.why, event.return_code) == (outcome, why, return_code)
    assert event.command == ("voir", "main.py")


@pytest.mark.parametrize(
    "torn", [b"", b"\n", b'{"event": "da', b"[1]", b'{"data": 1}', b'{"event": 3}', b"\xff\xfe", b"[" * 9999]
)
def test_a_torn_or_foreign_line_is_a_value_error(torn: bytes) -> None:
    with pytest.raises(ValueError):
        wire.decode(torn, "s")


def depth_of(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)


@pytest.mark.parametrize("depth", [MOST_DEPTH - 1, MOST_DEPTH, MOST_DEPTH + 1, 2 * MOST_DEPTH])
def test_what_is_nested_too_deeply_is_no_record_whatever_its_texts_hold(depth: int) -> None:
    chance, value = random.Random(depth), cast("Any", [])
    for _ in range(depth - 2):
        text = chance.choice(['"[[[', '\\"]', "{\\", "[]{}"])
        value = chance.choice([[value, text, []], [text, value, {}], {text: value, "a": text}])
    line = json.dumps({"a": value}).encode()
    assert depth_of(json.loads(line)) == depth
    if depth <= MOST_DEPTH:
        parse_object(line)
    else:
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_object(line)


def test_thousands_of_shallow_values_are_a_record() -> None:
    parse_object(json.dumps({"a": [[{"b": []}]] * 3000}).encode())
