"""The rate so far: what the window of the records comes to as soon as they are all there, however they arrive."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.analysis.measure import measure
from milabench.analysis.rate_so_far import RateSoFar, sums_of
from milabench.events.batch_decoder import decode_lines
from milabench.events.model import Config, Data, Event
from milabench.events.wire import encode
from milabench.execute.agent.ring import RingReader

NS = 10**9


def observed(begin_ns: int, lasted_ns: int, n: float, rank: int = 0, **more: Any) -> Event:
    """A step as the agent records it."""
    about = {"task": "train", "rate": n / lasted_ns * NS, "units": "items/s", "elapsed": lasted_ns / NS, "n": n}
    place = {"time": begin_ns / NS, "batch_id": 0, "t0_ns": begin_ns, "host_ns": lasted_ns, "clock": "host"}
    return Data(step="b", t=1.0, data={**about, **place, "rank": rank, **more})


def paused(start_ns: int, stop_ns: int) -> Event:
    pause = {"name": "validation", "start_ns": start_ns, "stop_ns": stop_ns}
    return Data(step="b", t=1.0, data={"task": "main", "pause": pause})


def folded(events: Sequence[Any]) -> dict[str, Any]:
    rate = RateSoFar()
    for event in events:
        if sums := sums_of(event):
            rate.add(sums)
    return rate.shown()


# General records keep the middle of a step: an odd nanosecond is lost.
lasted = st.integers(500, 10**9).map(lambda half_ns: 2 * half_ns)
steps = st.lists(st.tuples(st.integers(1, 10**9), lasted, st.integers(1, 100)), min_size=1, max_size=30)


@given(
    st.lists(steps, min_size=1, max_size=3),
    st.integers(0, 5),
    st.lists(st.tuples(st.integers(0, 29), st.integers(0, 100))),
)
def test_it_is_the_number_of_the_window_when_all_of_it_has_come(
    ranks: list[list[tuple[int, int, int]]], warm: int, pauses: list[tuple[int, int]]
) -> None:
    events: list[Event] = []
    for rank, made in enumerate(ranks):
        now = 10**9
        for index, (gap_ns, lasted_ns, n) in enumerate(made):
            is_warmup = index < min(warm, len(made) - 1)
            # Pauses lie in the gaps of the first rank; some of them come twice, as from two ranks.
            for where, share in pauses if rank == 0 else ():
                if where == index and gap_ns * share // 100:
                    events.append(paused(now, now + gap_ns * share // 100))
            now += gap_ns
            events.append(observed(now, lasted_ns, n, rank, **({"warmup": True} if is_warmup else {})))
            now += lasted_ns
    stop = {"window": {"start_ns": 0, "stop_ns": 2**61, "why": "complete"}, "task": "train"}
    # Asked for more than there is: nothing is cut to whole periods.
    asked = Config(step="b", data={"measure": {"window_steps": 10**6, "window_s": 0}})
    throughput = measure("b", [asked, *events, Data(step="b", data=stop)]).throughput
    shown = folded(events)
    if throughput is not None and not throughput.warmup_left:
        assert (shown["rate"], shown["is_warmup"]) == (pytest.approx(throughput.value, rel=1e-9), False)
    # One by one, or in the batches that a follower reads, it is the same.
    batches = list(decode_lines(b"".join(map(encode, events)), "b"))
    assert folded(batches) == {**shown, "rate": pytest.approx(shown["rate"], rel=1e-12)}


def test_before_the_window_it_is_that_of_the_warm_up() -> None:
    """Two steps of a second with a second between them: 20 items in 3 s."""
    warm_up = [observed(5 * NS, NS, 10, warmup=True), observed(7 * NS, NS, 10, warmup=True)]
    assert folded(warm_up) == {"task": "train", "rate": pytest.approx(20 / 3), "units": "items/s", "is_warmup": True}
    # From the end of the warm-up on.
    assert folded([*warm_up, observed(9 * NS, NS, 10)]) | {"task": ""} == {
        "task": "",
        "rate": pytest.approx(10 / 2),
        "units": "items/s",
        "is_warmup": False,
    }


def test_it_is_that_of_the_main_task_without_the_pauses_of_all() -> None:
    events = [
        observed(0, NS, 10),
        observed(NS, 3 * NS, 900, task="validation"),
        paused(NS, 4 * NS),
        paused(2 * NS, 3 * NS),
        observed(4 * NS, NS, 10),
    ]
    assert folded(events)["rate"] == pytest.approx(20 / 2)
    assert folded(list(reversed(events[2:4])) + events[:2] + events[4:])["rate"] == pytest.approx(20 / 2)


def test_observations_without_a_place_follow_each_other() -> None:
    events = [Data(step="b", data={"task": "train", "rate": 5.0, "elapsed": 2.0, "n": 10.0}) for _ in range(3)]
    assert folded(events)["rate"] == pytest.approx(5.0)


@pytest.mark.parametrize(
    "data",
    [
        {"rate": None, "elapsed": 0, "n": 8},
        {"rate": 5.0},
        {"rate": 5.0, "elapsed": "1", "n": None},
        {"rate": 5.0, "elapsed": 1.0, "n": -3},
        {"pause": {"start_ns": 5, "stop_ns": 5}},
        {"pause": None},
        {"loss": 1.0},
    ],
)
def test_what_is_no_observation_changes_nothing(data: dict[str, Any]) -> None:
    assert sums_of(Data(step="b", data=data)) == {}
    assert folded([Data(step="b", data=data)]) == {}


def ring(path: Path, slots: Sequence[tuple[int, ...]]) -> RingReader:
    """A file of observations as a process leaves it; see protocol.md, section 10."""
    header = bytearray(4096)
    meta = json.dumps({"task": "train", "units": "items/s", "rank": 2, "kind": "rate"}).encode()
    numbers = (len(slots), len(slots), 0, 0, 0, 0, 60, 0, 0, len(slots), len(meta))
    struct.pack_into("<8s11q", header, 0, b"MBRING01", *numbers)
    header[512 : 512 + len(meta)] = meta
    path.write_bytes(bytes(header) + b"".join(struct.pack("<8q", *slot) for slot in slots))
    return RingReader(str(path), world_size=4)


def test_the_sums_of_the_agent_are_those_of_its_records(tmp_path: Path) -> None:
    """Warm-up, then the window; thousandths of items, a device clock, parts, and one step that took no time."""
    warm_up, parts, thousandths = 1, 8, 4
    slots = [
        *((number, number * NS, NS // 2, 8, -1, 1, warm_up, -1) for number in range(3)),
        (3, 5, 6, 7, -1, 0, parts, 0),
        (3, 3 * NS, NS // 2, 8, NS // 4, 1, 0, 1000),
        (4, 4 * NS, 0, 8, -1, 1, 0, -1),
        (5, 5 * NS, NS, 1500, -1, 4, thousandths, -1),
    ]
    reader = ring(tmp_path / "r.ring", slots)
    records, count = reader.drain(0.0)
    assert count == 6
    sums = reader.last
    assert sums["spans"] == [[0, 2 * NS + NS // 2, 24, 1], [3 * NS, 6 * NS, 9.5, 0]]
    assert (sums["rank"], sums["progress"]) == (2, [1 + 1 + 4, 60])
    rate = RateSoFar()
    rate.add(sums)
    # From the end of the warm-up at 2.5 s to 6 s.
    assert rate.shown()["rate"] == pytest.approx(9.5 / 3.5)
    assert folded(list(decode_lines(records, "b"))) | {"progress": sums["progress"]} == rate.shown()
    assert reader.drain(0.0) == (b"", 0)
    assert reader.last == {}
    reader.close()
