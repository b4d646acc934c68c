"""Observations that a record holds column by column are those that stood in the ring, one by one or many at a time."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.events.batch_decoder import decode_lines, plain_batch
from milabench.events.model import Data, ObservationBatch
from milabench.events.observation_columns import single_events
from milabench.events.rundir import read_batches, read_events
from milabench.execute.agent.ring import RingReader
from milabench.execute.agent.slots import LONGEST

NS = 10**9
OFFSET_NS = 1_700_000_000 * NS
WARMUP, EPOCH_END, MILLI, PARTS = 1, 2, 4, 8
CONTINUED, PENDING = -1, -2
COLUMNS: dict[str, Any] = {
    "observations": 3,
    "task": "train",
    "units": "items/s",
    "unix_minus_mono_ns": OFFSET_NS,
    "clock": "host",
    "batch_id": 5,
    "t0_ns": 1000,
    "host_ns": [10, 20, 30],
    "n": 8,
    "wait_ns": [1, None, 3],
}

ODD: list[dict[str, Any]] = [
    {"observations": 4},
    {"observations": 0},
    {"observations": "3"},
    {"host_ns": [10, 20]},
    {"host_ns": [10, 20.5, 30]},
    {"host_ns": None},
    {"t0_ns": [1, 2]},
    {"t0_ns": "1000"},
    {"n": [1, None, 3]},
    {"n": True},
    {"wait_ns": 5},
    {"wait_ns": [1, 2]},
    {"device_ns": [1, None, 3]},
    {"steps": [1, 1]},
    {"batch_id": None},
    {"epoch_end": [None]},
    {"rank": -1},
    {"clock": None},
    {"units": 5},
    {"unix_minus_mono_ns": 0.5},
]

NOT_PLAIN: list[dict[str, Any]] = [
    {"host_ns": [10, 2**40, 30]},
    {"host_ns": [10, 0, 30]},
    {"n": [1, 0, 3]},
    {"t0_ns": [-5, 1, 2]},
]


class Steps:
    """Slots of a ring, and next to them what each step was, told by itself."""

    def __init__(self) -> None:
        self.slots: list[tuple[int, ...]] = []
        self.expected: list[dict[str, Any]] = []
        self.now_ns = 1000 * NS
        self.count = 0

    def add(self, host_ns: int, n: int, *, gap_ns: int = 0, wait_ns: int = -1, steps: int = 1, flags: int = 0) -> None:
        """A step on the host's clock, written out."""
        self.now_ns += gap_ns
        self.slots.append((self.count, self.now_ns, host_ns, n, -1, steps, flags, wait_ns))
        self._expect(host_ns, host_ns, n, wait_ns, steps, flags)

    def follow(self, host_ns: int, n: int, wait_ns: int, flags: int = 0) -> None:
        """A step that continues the one before."""
        end_ns, arrived_ns = self.now_ns + host_ns, self.now_ns + wait_ns
        self.slots.append((CONTINUED, CONTINUED, end_ns, n, -1, 1, flags, arrived_ns))
        self._expect(host_ns, host_ns, n, wait_ns, 1, flags)

    def add_on_device(self, host_ns: int, device_ns: int, n: int, parts_ns: Sequence[int] = ()) -> None:
        """A step with a device's clock, perhaps with its parts in the slot before."""
        if parts_ns:
            self.slots.append((self.count, *parts_ns, -1, 0, PARTS, 0))
        self.slots.append((self.count, self.now_ns, host_ns, n, device_ns, 1, 0, -1))
        self._expect(host_ns, device_ns, n, -1, 1, 0, "event", parts_ns)

    def _expect(
        self,
        host_ns: int,
        ns: int,
        n: float,
        wait_ns: int,
        steps: int,
        flags: int,
        clock: str = "host",
        parts: Any = (),
    ) -> None:
        items = n / 1000 if flags & MILLI else n
        names = ("wait", "forward", "backward", "optimizer")
        known = {name: part / NS for name, part in zip(names, (wait_ns, *parts), strict=False) if part >= 0}
        self.expected.append(
            {
                "task": "train",
                "units": "items/s",
                "rank": 2,
                "rate": items / (ns / NS) if ns else None,
                "time": (self.now_ns + host_ns + OFFSET_NS) / NS,
                "elapsed": ns / NS,
                "n": items,
                "batch_id": self.count,
                "t0_ns": self.now_ns,
                "host_ns": host_ns,
                "clock": clock,
                **({"parts": known} if known else {}),
                **({"steps": steps} if steps > 1 else {}),
                **({"warmup": True} if flags & WARMUP else {}),
                **({"epoch_end": True} if flags & EPOCH_END else {}),
                **({} if ns else {"nonfinite": ["rate"]}),
            }
        )
        self.now_ns += host_ns
        self.count += steps


def records_of(slots: Sequence[tuple[int, ...]], folder: Path, *, drains: int = 1) -> bytes:
    """What the agent writes of a ring that was written in so many pieces, drained after each and at the end."""
    path = folder / "r.ring"
    meta = json.dumps({"task": "train", "units": "items/s", "rank": 2, "kind": "rate"}).encode()
    header = bytearray(4096)
    struct.pack_into("<8s11q", header, 0, b"MBRING02", max(1, len(slots)), 0, 0, 0, 0, OFFSET_NS, 0, 0, 0, 0, len(meta))
    header[512 : 512 + len(meta)] = meta
    path.write_bytes(bytes(header) + b"".join(struct.pack("<8q", *slot) for slot in slots) + bytes(64))
    reader, lines = RingReader(str(path), world_size=4), b""
    for piece in range(1, drains + 1):
        with path.open("r+b") as file:
            file.seek(16)
            file.write(struct.pack("<q", len(slots) * piece // drains))
        lines += reader.drain(5.0)[0]
    lines += reader.drain(5.0, final=True)[0]
    reader.close()
    return lines


def read(lines: bytes, folder: Path) -> list[dict[str, Any]]:
    path = folder / "s.data"
    path.write_bytes(lines)
    return [dict(event.data) for event in read_events(path, "s") if isinstance(event, Data)]


def assert_same(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> None:
    assert [data.keys() for data in found] == [data.keys() for data in expected]
    for data, should in zip(found, expected, strict=True):
        assert {**data, "rate": 0, "parts": 0} == {**should, "rate": 0, "parts": 0}
        assert data["rate"] == (None if should["rate"] is None else pytest.approx(should["rate"], rel=1e-14))
        assert data.get("parts") == pytest.approx(should.get("parts"))


FLAGS = st.sampled_from([0, 0, 0, WARMUP, EPOCH_END, MILLI, WARMUP | MILLI])
TIMES = st.integers(2, 5 * NS)
KINDS = st.one_of(
    st.tuples(
        st.just("add"), TIMES, st.integers(1, 10**6), st.integers(0, 9), st.integers(-1, 9), st.integers(1, 3), FLAGS
    ),
    st.tuples(st.just("follow"), TIMES, st.integers(1, 10**6), st.integers(0, 9), FLAGS),
    st.tuples(
        st.just("device"), TIMES, TIMES, st.integers(1, 99), st.lists(st.integers(-1, 99), min_size=3, max_size=3)
    ),
)


@given(st.lists(KINDS, min_size=1, max_size=40), st.integers(1, 4))
def test_what_stands_in_the_ring_is_read_back_from_the_records(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], drains: int
) -> None:
    folder, steps = tmp_path_factory.mktemp("ring"), Steps()
    for kind, *values in drawn:
        match kind, values:
            case "add", (host_ns, n, gap_ns, wait_ns, together, flags):
                steps.add(host_ns, n, gap_ns=gap_ns, wait_ns=wait_ns, steps=together, flags=flags)
            case "follow", (host_ns, n, wait_ns, flags):
                steps.follow(host_ns, n, wait_ns, flags) if steps.slots else steps.add(host_ns, n)
            case "device", (host_ns, device_ns, n, parts_ns):
                steps.add_on_device(host_ns, device_ns, n, parts_ns if parts_ns != [-1, -1, -1] else ())
            case _:
                raise AssertionError(kind)
    lines = records_of(steps.slots, folder, drains=drains)
    assert_same(read(lines, folder), steps.expected)
    assert sorted(rows_in_batches(folder)) == sorted(map(row, steps.expected))


def row(data: dict[str, Any]) -> tuple[Any, ...]:
    """What the analysis takes of an observation."""
    marks = (data.get("warmup", False), data.get("epoch_end", False))
    return data["t0_ns"], round(data["elapsed"] * NS), data["host_ns"], data["n"], data.get("steps", 1), *marks


def rows_of(batch: ObservationBatch) -> Iterator[tuple[Any, ...]]:
    columns = (batch.t0_ns, batch.ns, batch.host_ns, batch.n, batch.steps, batch.warmup, batch.epoch_end)
    return zip(*columns, strict=True)


def rows_in_batches(folder: Path) -> Iterator[tuple[Any, ...]]:
    for event in read_batches(folder / "s.data", "s"):
        if isinstance(event, ObservationBatch):
            yield from rows_of(event)
        elif isinstance(event, Data):
            yield row(dict(event.data))


def test_a_run_of_steps_takes_few_bytes_and_is_one_batch(tmp_path: Path) -> None:
    steps = Steps()
    steps.add(1_000_000, 32, wait_ns=1000)
    for number in range(3000):
        steps.follow(1_000_000 + number, 32, 1000 + number)
    lines = records_of(steps.slots, tmp_path)
    assert len(lines) < 20 * len(steps.slots)
    (batch,) = decode_lines(lines, "s")
    assert isinstance(batch, ObservationBatch)
    assert (batch.n, batch.steps, batch.host_ns) == ([32] * 3001, [1] * 3001, batch.ns)
    assert batch.t0_ns == [data["t0_ns"] for data in steps.expected]
    assert batch.wait == pytest.approx(sum(data["parts"]["wait"] for data in steps.expected))
    assert batch.end == steps.expected[0]["time"]


@pytest.mark.slow
def test_no_record_holds_more_than_readers_hold_at_a_time(tmp_path: Path) -> None:
    steps = Steps()
    for _ in range(2 * LONGEST + 1):
        steps.add(1000, 1, gap_ns=1)
    lines = records_of(steps.slots, tmp_path)
    assert [json.loads(line)["data"]["observations"] for line in lines.splitlines()] == [LONGEST, LONGEST, 1]
    assert_same(read(lines, tmp_path), steps.expected)


def test_a_step_without_duration_is_an_event_of_its_own_without_a_rate(tmp_path: Path) -> None:
    steps = Steps()
    for host_ns in (NS, 0, NS):
        steps.add(host_ns, 8)
    lines = records_of(steps.slots, tmp_path)
    assert_same(read(lines, tmp_path), steps.expected)
    assert [dict(event.data) for event in decode_lines(lines, "s") if isinstance(event, Data)] == read(lines, tmp_path)


def test_numbers_of_steps_that_do_not_count_on_are_kept(tmp_path: Path) -> None:
    slots = [(number, number * NS, NS, 1, -1, 2, 0, -1) for number in (0, 2, 7, 9, 8)]
    found = read(records_of(slots, tmp_path), tmp_path)
    assert [data["batch_id"] for data in found] == [0, 2, 7, 9, 8]


def test_times_are_those_of_the_step_before_where_one_continues_another(tmp_path: Path) -> None:
    steps = Steps()
    steps.add(7, 1)
    for _ in range(5):
        steps.follow(7, 1, 3)
    found = read(records_of(steps.slots, tmp_path, drains=3), tmp_path)
    assert all(after["t0_ns"] == data["t0_ns"] + data["host_ns"] for data, after in pairwise(found))


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_columns_that_the_agent_does_not_write_stay_the_record_that_they_are(odd: dict[str, Any]) -> None:
    event = Data(step="s", t=1.0, data={**COLUMNS, **odd})
    assert list(single_events(event)) == [event]


def test_columns_are_a_value_for_each_or_one_for_all() -> None:
    first, second, third = (dict(event.data) for event in single_events(Data(step="s", t=1.0, data=COLUMNS)))
    assert (first["batch_id"], second["batch_id"], third["batch_id"]) == (5, 6, 7)
    assert (first["t0_ns"], second["t0_ns"], third["t0_ns"]) == (1000, 1010, 1030)
    assert ("parts" in first, "parts" in second, third["parts"]) == (True, False, {"wait": 3e-9})
    assert {first["n"], second["n"], third["n"]} == {8}


@pytest.mark.parametrize("odd", NOT_PLAIN, ids=repr)
def test_columns_with_an_observation_that_is_not_plain_are_single_events(odd: dict[str, Any]) -> None:
    event = Data(step="s", t=1.0, data={**COLUMNS, **odd})
    assert len(list(single_events(event))) == 3


PLAIN: list[dict[str, Any]] = [
    {},
    {"rank": 1, "warmup": True},
    {"rank": None, "epoch_end": [2], "steps": 2},
    {"clock": "event", "device_ns": [9, 19, 29], "steps": [1, 2, 3]},
    {"t0_ns": [0, 11, 40], "batch_id": [1, 2, 9], "n": [8, 8.5, 1e-3]},
    {"n": 0.5, "host_ns": 7, "wait_ns": [None, None, None]},
    {"forward_ns": [1, None, -3], "unknown": {"key": [1]}},
]


@pytest.mark.parametrize("more", PLAIN, ids=repr)
def test_a_record_that_is_decoded_at_once_holds_what_it_holds_key_by_key(more: dict[str, Any]) -> None:
    data = {**COLUMNS, **more}
    batch = plain_batch(json.dumps({"event": "data", "data": data, "pipe": "data", "t": 1.0}).encode(), "s")
    assert batch is not None
    singles = [dict(event.data) for event in single_events(Data(step="s", t=1.0, data=data))]
    assert list(rows_of(batch)) == list(map(row, singles))
    waits = [single["parts"]["wait"] for single in singles if "wait" in single.get("parts", {})]
    assert batch.wait == (pytest.approx(sum(waits)) if waits and not data.get("warmup") else None)
    assert (batch.end, batch.rank) == (singles[0]["time"], singles[0].get("rank", 0))


@pytest.mark.parametrize("odd", [*ODD, *NOT_PLAIN, {"t0_ns": 2**62 - 20}, {"n": 1e60}, {"rank": True}], ids=repr)
def test_what_may_be_another_record_is_not_decoded_at_once(odd: dict[str, Any]) -> None:
    assert plain_batch(json.dumps({"event": "data", "data": {**COLUMNS, **odd}, "t": 1.0}).encode(), "s") is None
