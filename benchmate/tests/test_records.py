"""Records: strict JSON whatever is in them, and the keys of an observation."""

from __future__ import annotations

import json
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmate.records import encode, observation
from benchmate.ring import EPOCH_END, MILLI, WARM_UP, RingEntry
from benchmate.sink import TableSink, open_sink
from benchmate.summary_table import SummaryTable

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def refuse(name: str):
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=4), values, max_size=4))
def test_every_record_is_one_line_of_strict_json(data):
    line = encode(data)
    assert b"\n" not in line
    json.loads(line, parse_constant=refuse)


@given(
    st.dictionaries(st.text(max_size=4).filter(lambda name: name != "nonfinite"), st.floats() | st.text(), max_size=4)
)
def test_nonfinite_values_are_null_and_listed(data):
    got = json.loads(encode(data))
    named = got.pop("nonfinite", [])
    bad = [
        name
        for name, value in data.items()
        if isinstance(value, float) and (value != value or abs(value) == float("inf"))
    ]
    assert named == bad
    assert got == {name: None if name in bad else value for name, value in data.items()}


def test_scalars_of_array_libraries_are_numbers_and_other_objects_their_text():
    class Scalar:
        def item(self):
            return 2.5

    assert json.loads(encode({"a": Scalar(), "b": {1}, "c": ...})) == {"a": 2.5, "b": [1], "c": "Ellipsis"}


def test_an_object_that_raises_when_it_is_read_is_recorded_by_its_class():
    class Odd:
        @property
        def item(self):
            raise RuntimeError("not yet")

        def __str__(self):
            raise KeyError

    text = "<Odd: KeyError instead of a text>"
    assert json.loads(encode({"a": Odd(), "b": [Odd()]})) == {"a": text, "b": [text]}
    table = SummaryTable()
    table.add("data", {"metric": "odd", "value": Odd(), "units": "B"})
    table.add("data", {"metric": "array", "value": types.SimpleNamespace(item=lambda: 2.5)})
    assert table.text() == f"odd: {text}\narray: 2.5"


def entry(**changes) -> RingEntry:
    values = {
        "batch_id": 3,
        "t0_ns": 10**9,
        "host_ns": 2 * 10**9,
        "n": 8,
        "device_ns": -1,
        "steps": 1,
        "flags": 0,
        "wait_ns": -1,
    }
    return RingEntry(**{**values, **changes})


META = {"task": "train", "units": "items/s", "rank": 2}


def test_an_observation_on_the_host_clock():
    assert observation(entry(), META, 5 * 10**9) == {
        "task": "train",
        "rate": 4.0,
        "units": "items/s",
        "time": 8.0,
        "elapsed": 2.0,
        "n": 8,
        "batch_id": 3,
        "t0_ns": 10**9,
        "host_ns": 2 * 10**9,
        "clock": "host",
    }


def test_an_observation_with_everything():
    got = observation(
        entry(device_ns=10**9, steps=4, flags=WARM_UP | EPOCH_END | MILLI, n=2500, wait_ns=10**8), META, 0, world_size=4
    )
    assert {
        key: got[key] for key in ("rate", "elapsed", "n", "clock", "warmup", "epoch_end", "rank", "steps", "parts")
    } == {
        "rate": 2.5,
        "elapsed": 1.0,
        "n": 2.5,
        "clock": "event",
        "warmup": True,
        "epoch_end": True,
        "rank": 2,
        "steps": 4,
        "parts": {"wait": pytest.approx(0.1)},
    }


def test_a_sink_without_a_place_is_refused_and_results_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    assert isinstance(open_sink({"MILABENCH_SINK": "unix"}, {}), TableSink)
    assert "expected unix:PATH or fd:NUMBER" in capfd.readouterr().err
