"""Millions of observations are read in batches and kept in few bytes, and come to the same numbers as one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.measure import Measurement, measure
from milabench.analysis.series import RunLengths
from milabench.checks.check import StepContext
from milabench.checks.rate import RateCheck
from milabench.events.model import ObservationBatch
from milabench.events.rundir import read_batches, read_events


def observation(place: int, elapsed_ns: int, **more: Any) -> dict[str, Any]:
    n = more.pop("n", 32)
    data = {
        "task": "train",
        "rate": n / (elapsed_ns / 1e9),
        "units": "images/s",
        "time": 1e9 + place,
        "elapsed": elapsed_ns / 1e9,
        "n": n,
        "batch_id": place,
        "t0_ns": 10**12 + place * 2_000_000,
        "host_ns": elapsed_ns,
        "clock": "host",
        "parts": {"wait": elapsed_ns / 1e10},
    }
    return {"event": "data", "data": {**data, **more}, "pipe": "data", "t": 5.0 + place}


def window(first: int, last: int) -> dict[str, Any]:
    told = {"start_ns": 10**12 + first * 2_000_000, "stop_ns": 10**12 + last * 2_000_000, "start": 1.0, "stop": 2.0}
    return {"event": "data", "data": {"task": "train", "window": told}, "pipe": "data", "t": 9.0}


def written(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    return path


def drawn(kind: str) -> Iterator[dict[str, Any]]:
    draw = random.Random(7)
    for place in range(700):
        more: dict[str, Any] = {"warmup": True} if place < 30 else {}
        elapsed = int(1_000_000 * (1 + 0.05 * draw.gauss(0, 1)))
        if kind == "device":
            more |= {"clock": "event", "host_ns": elapsed - 300}
        if kind == "ranks":
            more["rank"] = place % 2
        if kind == "uneven":
            more["n"] = draw.randint(1, 64)
        if kind == "epochs" and place % 100 == 99:
            more |= {"epoch_end": True, "n": 7}
        if kind == "mixed" and place % 3 == 0:
            more["loss"] = 0.5
        if kind == "aggregated" and place >= 400:
            more |= {"steps": 2, "n": 64}
        yield observation(place, elapsed, **more)
        if kind == "lines" and place % 5 == 0:
            yield {"event": "line", "data": f"step {place}\n", "pipe": "stdout", "t": 1.0}
    if kind != "open":
        yield window(40, 650)


def told(found: Measurement) -> Any:
    rate = found.throughput
    assert rate is not None
    return {
        "value": rate.value,
        "observations": rate.observations,
        "within": rate.spread_within,
        "doubts": rate.doubts,
        "latency": dict(rate.latency),
        "totals": [(one.rank, one.items, one.seconds, one.steps) for one in rate.totals],
        "warmup_left": rate.warmup_left,
        "wait": found.metric("data_wait"),
        "ends": [round(one, 6) for series in found.series for one in map(series.middle, range(len(series.lasted)))],
    }


@pytest.mark.parametrize(
    "kind", ["plain", "open", "device", "ranks", "uneven", "epochs", "mixed", "lines", "aggregated"]
)
def test_batches_come_to_the_same_as_single_events(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path / "s.data", list(drawn(kind)))
    one_by_one, in_batches = measure("s", read_events(path, "s")), measure("s", read_batches(path, "s"))
    assert any(isinstance(each, ObservationBatch) for each in read_batches(path, "s"))
    expected, found = told(one_by_one), told(in_batches)
    for exact in ("observations", "doubts", "warmup_left"):
        assert found[exact] == expected[exact]
    for near in ("value", "within", "wait"):
        assert found[near] == pytest.approx(expected[near], rel=1e-9, abs=1e-12)
    assert found["latency"] == pytest.approx(expected["latency"], rel=1e-9)
    assert sorted(found["totals"]) == [pytest.approx(each, rel=1e-9) for each in sorted(expected["totals"])]
    assert sorted(found["ends"]) == pytest.approx(sorted(expected["ends"]))


def test_the_check_of_rates_sees_the_same_in_batches(tmp_path: Path) -> None:
    records = [observation(place, 1_000_000 + 150 * place, warmup=place < 10) for place in range(9000)]
    path = written(tmp_path / "s.data", records)
    check = RateCheck(StepContext(step="s"))
    verdicts = [check.verdict(measure("s", events)) for events in (read_events(path, "s"), read_batches(path, "s"))]
    assert [verdict.numbers["count"] for verdict in verdicts] == [9000, 9000]


@pytest.mark.parametrize(
    "odd",
    [
        {"rate": 0.0},
        {"rate": None},
        {"elapsed": -1.0},
        {"elapsed": 5.0},
        {"t0_ns": -1},
        {"host_ns": 2**40},
        {"n": "many"},
        {"rank": -1},
        {"metric": "x", "value": 1.0},
        {"gpudata": {}},
    ],
)
def test_an_observation_that_is_not_plain_stays_an_event_of_its_own(tmp_path: Path, odd: dict[str, Any]) -> None:
    records = [observation(0, 1000), observation(1, 1000), observation(2, 1000)]
    records[1]["data"].update(odd)
    path = written(tmp_path / "s.data", records)
    kinds = [type(each).__name__ for each in read_batches(path, "s")]
    assert kinds == ["ObservationBatch", "Data", "ObservationBatch"]


def test_what_is_no_record_is_told_and_a_torn_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "s.data"
    good = json.dumps(observation(0, 1000), separators=(",", ":")).encode()
    path.write_bytes(good + b"\nnot json\n\xff\xfe\n\n" + good + b"\n" + good[:40])
    found = list(read_batches(path, "s"))
    assert [getattr(each, "event", "observations") for each in found] == [
        *("observations", "format_error", "format_error", "observations"),
    ]
    assert list(read_batches(tmp_path / "none.data", "s")) == []


def test_a_line_longer_than_what_is_read_at_a_time_is_one_event(tmp_path: Path) -> None:
    long = {"event": "line", "data": "x" * 3_000_000, "pipe": "stdout", "t": 1.0}
    path = written(tmp_path / "s.data", [observation(0, 1000), long, observation(1, 1000)])
    assert [type(each).__name__ for each in read_batches(path, "s")] == ["ObservationBatch", "Line", "ObservationBatch"]


@pytest.mark.parametrize("step", [1, 7, 500])
def test_a_column_of_runs_is_the_numbers_that_were_put_in(step: int) -> None:
    draw = random.Random(step)
    values = [float(draw.choice((32, 32, 32, 7))) if step == 1 else float(place // step) for place in range(3000)]
    column = RunLengths()
    for at in range(0, len(values), 100):
        column.extend(values[at : at + 100])
    assert list(column) == values
    assert [column[place] for place in (0, 99, 100, -1)] == [values[place] for place in (0, 99, 100, -1)]
    assert column[5:300:7] == values[5:300:7]
    assert [value for places, value in column.runs() for _ in places] == values
    with pytest.raises(IndexError):
        column[3000]
