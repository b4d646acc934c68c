"""Whichever way lines are decoded, all alike at once, in bulk or one by one, the same events come out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.events import batch_decoder
from milabench.events.batch_decoder import decode_lines
from milabench.events.model import ObservationBatch, StepEvent

KEYS = {
    "task": '"train"',
    "rate": "31488.5",
    "units": '"images/s"',
    "time": "1000.001086",
    "elapsed": "0.001016241",
    "n": "32",
    "batch_id": "7",
    "t0_ns": "1000001086287",
    "host_ns": "1016241",
    "clock": '"host"',
    "parts": '{"wait":0.000175010}',
}
ODD = {
    "task": ['"valid"', '"tr\\u00e4in"', '"tr\xe4in"', '"\\ud800"', "null", "7", '""'],
    "rate": ["0", "-1.5", "null", "NaN", "Infinity", "1e400", "1" * 400, '"fast"', "31488"],
    "units": ['""', '"items/s"', "null"],
    "time": ["null", "-5", "1e60", "true"],
    "elapsed": ["0", "1e-9", "0.002", "5.0", "1", "-0.0"],
    "n": ["32.0", "31", "0", "32.5", '"32"', "1e50", "1e51", "true", "4294967295", "4294967296"],
    "batch_id": ["8", "8.5", "1" * 30, "null"],
    "t0_ns": ["-1", "1.0", "4611686018427387905", "9" * 30],
    "host_ns": ["0", "4294967296", "1016241.0", "1016240"],
    "clock": ['"event"', "null", '"program"', '""'],
    "parts": ["{}", "null", '{"wait":null}', '{"wait":-1}', '{"wait":0.5,"forward":0.25}', '{"forward":1}', "[]"],
    "rank": ["0", "1", "-1", "null", "false"],
    "steps": ["1", "4", "0", "2.0"],
    "warmup": ["true", "false", "0"],
    "epoch_end": ["true", "false"],
    "loss": ["0.5"],
    "nonfinite": ['["rate"]'],
}
TORN_AND_OTHER = [
    '{"event":"data","data":{"task":"train","ra',
    "",
    "   ",
    "not json",
    "[]",
    '{"event":"line","data":"step 5\\n","pipe":"stdout","t":5.5}',
    '{"event":"line","data":"step 5\\n","pipe":"data","t":5.5}',
    '{"event":"data","data":{"task":"train","loss":0.5},"pipe":"data","t":5.5}',
    '{"event":"data","data":{"task":"train","window":{"start_ns":1,"stop_ns":9}},"pipe":"data","t":5.5}',
    '{"event":"end","data":{"return_code":0},"pipe":null,"t":5.5}',
]


def line(values: dict[str, str], *, pipe: str = '"data"', t: str = "5.25", twice: str = "") -> str:
    own = ",".join(f'"{key}":{value}' for key, value in values.items())
    return f'{{"event":"data","data":{{{own}{twice}}},"pipe":{pipe},"t":{t}}}'


@st.composite
def observed(draw: st.DrawFn, common: dict[str, str]) -> str:
    """A line like its neighbours but for its times, or one that differs from them in a way or two."""
    values = common | {"t0_ns": str(draw(st.integers(10**12, 10**12 + 99))), "host_ns": str(draw(st.integers(1, 99)))}
    if draw(st.integers(0, 5)):
        return line(values)
    for key in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)):
        values[key] = draw(st.sampled_from(ODD[key]))
    for key in draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=1)):
        values.pop(key, None)
    if draw(st.booleans()):
        values = dict(draw(st.permutations(list(values.items()))))
    return line(
        values,
        pipe=draw(st.sampled_from(['"data"', "null", '"stdout"', "7"])),
        t=draw(st.sampled_from(["5.5", "5", "null", "NaN", "1e60"])),
        twice=draw(st.sampled_from(["", ',"n":32', ',"n":7', ',"task":"other"'])),
    )


@st.composite
def pieces(draw: st.DrawFn) -> bytes:
    common = dict(KEYS)
    for key in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=1)):
        common[key] = draw(st.sampled_from(ODD[key]))
    lines = draw(st.lists(observed(common) | st.sampled_from(TORN_AND_OTHER), max_size=8))
    # As many as it takes for a group between two other records to be tried as alike.
    lines += [line(common)] * draw(st.sampled_from([0, 0, 40]))
    return "".join(f"{each}\n" for each in lines).encode("utf-8", "surrogatepass")


def told(events: Iterator[StepEvent]) -> list[str]:
    return list(map(repr, events))  # of numbers that are none, too


def one_by_one(piece: bytes) -> Iterator[tuple[object, ...]]:
    """Every observation with all that a batch says of it, and every other event."""
    return rows(itertools.chain.from_iterable(decode_lines(each, "s") for each in piece.split(b"\n")))


def rows(events: Iterator[StepEvent]) -> Iterator[tuple[object, ...]]:
    for event in events:
        if isinstance(event, ObservationBatch):
            columns = (event.t0_ns, event.host_ns, event.n, event.steps, event.warmup, event.epoch_end)
            yield from ((event.task, event.rank, event.units, *row) for row in zip(*columns, strict=True))
        else:
            yield (repr(event),)


@given(pieces())
def test_lines_that_are_all_alike_are_decoded_as_any_others(piece: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_decoder, "_alike", lambda lines, step: None)
        expected = told(decode_lines(piece, "s"))
    assert told(decode_lines(piece, "s")) == expected


@given(pieces())
def test_lines_come_to_what_each_of_them_does(piece: bytes) -> None:
    # Between observations of different ranks and tasks no order is kept.
    assert sorted(map(repr, rows(decode_lines(piece, "s")))) == sorted(map(repr, one_by_one(piece)))


def test_lines_that_are_all_alike_are_one_batch_with_their_common_values() -> None:
    lines = [line(KEYS | {"t0_ns": str(10**12 + place), "rank": "3", "steps": "4"}) for place in range(5)]
    (batch,) = batch_decoder._alike("\n".join(lines).encode(), "s") or []
    assert (batch.task, batch.rank, batch.units, batch.end) == ("train", 3, "images/s", 1000.001086)
    assert (batch.n, batch.steps, batch.warmup, batch.epoch_end) == ([32.0] * 5, [4] * 5, [False] * 5, [False] * 5)
    assert batch.t0_ns == [10**12 + place for place in range(5)]
    assert batch.ns is batch.host_ns
    assert batch.wait == pytest.approx(5 * 0.00017501)
