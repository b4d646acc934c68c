"""What is drawn of a run: thinned without losing a spike, honest about what was not read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.measure import measure
from milabench.analysis.summary import summarise
from milabench.analysis.traces import BUCKETS, QUANTILES, Trace, Tracing, curve, trace
from milabench.events.model import Event, ObservationBatch, StepEvent
from tests.drawn_runs import HOT, STEPS, system
from tests.recorded_run import Recorded, data, rates, record


def observed(ns: list[int], warmup: int = 0) -> ObservationBatch:
    length = len(ns)
    starts = [0]
    for each in ns[:-1]:
        starts.append(starts[-1] + each)
    return ObservationBatch(
        step="s", task="train", rank=0, units="items/s", end=100.0 + ns[0] / 1e9, t0_ns=starts, ns=ns, host_ns=ns,
        n=[32.0] * length, steps=[1] * length, warmup=[place < warmup for place in range(length)],
        epoch_end=[False] * length,
    )  # fmt: skip


def drawn(events: Iterable[StepEvent]) -> Trace:
    return trace(measure("s", events))


@pytest.mark.slow
def test_a_spike_of_one_step_survives_in_a_million() -> None:
    ns = [1_000_000] * 1_000_000
    ns[777_777] = 500_000_000
    found = drawn([observed(ns)]).ranks[0]
    assert found.rate.count == 1_000_000 and len(found.rate.time) == BUCKETS
    assert min(found.rate.low) == pytest.approx(64) and max(found.rate.high) == pytest.approx(32_000)
    assert sum(low < 1000 for low in found.rate.low) == 1


def test_quantiles_are_those_of_the_rates_after_warm_up() -> None:
    found = drawn([observed([8_000_000] * 10 + [1_000_000, 2_000_000, 4_000_000], warmup=10)]).ranks[0]
    told = dict(zip(QUANTILES, found.quantiles, strict=True))
    assert (told[0.0], told[0.5], told[1.0]) == pytest.approx((8_000, 16_000, 32_000))
    assert found.warmup == pytest.approx(0.072)


def test_a_curve_skips_what_was_not_read() -> None:
    found = curve([1.0, 2.0, 3.0], [5.0, math.nan, 7.0], begin=1.0)
    assert (found.time, found.low, found.high, found.count) == ((0.0, 2.0), (5.0, 7.0), (5.0, 7.0), 2)


def test_records_without_times_are_counted_instead() -> None:
    found = drawn(rates(1.0, 2.0, 3.0)).ranks[0]
    assert not found.rate.is_timed and found.rate.time == (1.0, 2.0, 3.0)


def sample(time: float, throttle: Any) -> Event:
    return data(task="main", gpudata={"0": {"throttle": throttle, "memory": [1, 2]}}, time=time)


def test_throttling_is_told_by_stretches_and_a_power_cap_is_none() -> None:
    heat = ["hw_thermal"]
    events = [sample(t, told) for t, told in enumerate([[], heat, heat, ["sw_power_cap"], None, heat])]
    device = drawn(events).devices[0]
    assert [(one.start, one.stop, one.reasons) for one in device.throttled] == [
        (1.0, 3.0, ("hw_thermal",)),
        (5.0, 5.0, ("hw_thermal",)),
    ]
    assert (device.samples, device.throttle_samples, device.held_back, device.capped) == (6, 5, 3, 1)


def test_a_sensor_that_is_not_there_has_no_curve() -> None:
    assert set(drawn([sample(0.0, []), sample(1.0, [])]).devices[0].curves) == {"memory"}


def test_a_step_that_never_began_has_nothing(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(outcome="failed", events=()))
    (found,) = Tracing().of(run)
    assert (found.ranks, found.devices, dict(found.host), found.window) == ((), (), {}, None)


def test_a_run_is_read_step_by_step(tmp_path: Path) -> None:
    found = {one.step: one for one in Tracing().of(system(tmp_path, "new", 1.2, repeats=1))}
    hot = found["resnet50.D1"]
    assert hot.ranks[0].rate.count == STEPS
    assert hot.devices[0].held_back == len([step for step in HOT if step % 2 == 0])
    assert hot.window is not None and hot.window[0] < hot.devices[0].throttled[0].start < hot.window[1]
    assert found["bert.D1"].devices[0].held_back == 0


def test_who_saw_the_records_when_they_were_read_need_not_read_them_again(tmp_path: Path) -> None:
    run = system(tmp_path, "new", 1.2, repeats=2)
    read_by_itself, alone, tracing = Tracing().of(run), summarise(run), Tracing()
    assert summarise(run, course=tracing.course(run)) == alone
    for path in run.path.glob("*.data"):
        path.unlink()
    assert repr(tracing.of(run)) == repr(read_by_itself)  # nan is not equal to itself
    assert any(one.ranks and one.devices for one in read_by_itself)
