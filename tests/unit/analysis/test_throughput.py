"""What a launch achieved: items over the wall clock of its window, and what makes that number doubtful."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.measure import Measurement, measure
from milabench.analysis.summary import summarise
from milabench.analysis.throughput import LongestStall, Throughput
from milabench.events.model import Config, Data, Event
from milabench.events.rundir import read_batches
from tests.recorded_run import Recorded, complete_window, record

S = 10**9


def step(begin_s: float, lasted_s: float, n: float | None = 8, rank: int = 0, **more: Any) -> Event:
    data = {
        "task": "train",
        "units": "items/s",
        "n": n,
        "elapsed": lasted_s,
        "rate": None if n is None else n / lasted_s,
        "t0_ns": round(begin_s * S),
        "host_ns": round(lasted_s * S),
        "rank": rank,
        **more,
    }
    return Data(step="b", data=data)


def window(start_s: float, stop_s: float, why: str = "complete") -> Event:
    return Data(
        step="b",
        data={"task": "train", "window": {"start_ns": round(start_s * S), "stop_ns": round(stop_s * S), "why": why}},
    )


def asked(steps: int = 1, seconds: float = 0.0) -> Event:
    return Config(step="b", data={"measure": {"window_steps": steps, "window_s": seconds}})


def pause(name: str, start_s: float, stop_s: float) -> Event:
    data = {"task": "main", "pause": {"name": name, "start_ns": round(start_s * S), "stop_ns": round(stop_s * S)}}
    return Data(step="b", data=data)


def epochs(count: int, steps: int, gap_s: float, step_s: float = 0.1) -> list[Event]:
    """Epochs of so many steps, each followed by a gap, from 1 s on."""
    now, events = 1.0, []
    for _ in range(count):
        for index in range(steps):
            events.append(step(now, step_s, **({"epoch_end": True} if index == steps - 1 else {})))
            now += step_s
        now += gap_s
    return events


def rate(events: Iterable[Event]) -> Throughput:
    throughput = measure("b", events).throughput
    assert throughput is not None
    return throughput


def test_perf_is_items_over_the_wall_clock_of_the_window_gaps_included() -> None:
    """Ten epochs of ten steps of 0.1 s, 0.4 s between them: from 1 s to 14.6 s, 13.6 s for 800 items."""
    found = rate([asked(steps=200), window(0.0, 15.0), *epochs(10, 10, gap_s=0.4)])
    assert found.value == pytest.approx(800 / 13.6)
    assert found.steps_rate == pytest.approx(80)
    assert found.between_steps == pytest.approx(3.6 / 13.6)
    assert found.doubts == ("short",)
    assert found.totals[0].seconds == pytest.approx(13.6)
    assert found.totals[0].step_seconds == pytest.approx(10.0)


def test_a_first_look_is_the_whole_window_whatever_is_left_in_it() -> None:
    """90 steps, the first 10 of them twice as slow: a short window has too few steps to say which part of it counts."""
    events = [step(1.0 + 0.2 * k, 0.2) for k in range(10)] + [step(3.0 + 0.1 * k, 0.1) for k in range(80)]
    quick = Config(step="b", data={"measure": {"profile": "quick", "window_steps": 20, "window_s": 3}})
    found = rate([quick, window(1.0, 11.0), *events])
    assert found.value == pytest.approx(720 / 10.0)
    assert "short" in found.doubts
    assert rate([asked(), window(1.0, 11.0), *events]).value == pytest.approx(80)


def test_a_gap_before_the_first_step_of_the_window_belongs_to_it() -> None:
    """Else a window that begins at the end of an epoch would have one gap less than it has epochs."""
    events = [step(1.0, 1.0, warmup=True), step(2.5, 1.0), step(3.5, 1.0)]
    assert rate([asked(), window(2.0, 4.5), *events]).value == pytest.approx(16 / 2.5)


def test_a_declared_pause_is_left_out_and_has_its_share() -> None:
    events = epochs(10, 10, gap_s=0.4)
    gaps = [pause("validation", 1 + 1.4 * k + 1.0, 1 + 1.4 * k + 1.4) for k in range(9)]
    found = rate([*complete_window(), *events, *gaps])
    assert found.value == pytest.approx(80)
    assert found.pauses == {"validation": pytest.approx(3.6 / 13.6)}
    assert found.doubts == ()


def test_a_pause_inside_a_step_is_left_out_once_and_so_is_one_within_another() -> None:
    events = [step(1.0, 1.0), step(2.0, 3.0), step(5.0, 1.0)]
    nested = [pause("checkpoint", 2.5, 4.5), pause("upload", 3.0, 4.0)]
    found = rate([*complete_window(), *events, *nested])
    assert found.value == pytest.approx(24 / 3.0)
    assert found.steps_rate == pytest.approx(24 / 3.0)
    assert found.pauses == {"checkpoint": pytest.approx(0.4), "upload": pytest.approx(0.2)}


def test_a_window_that_is_nothing_but_a_pause_has_no_number() -> None:
    events = [asked(), window(0.0, 3.0), step(1.0, 0.5), step(1.5, 0.5), pause("checkpoint", 0.0, 3.0)]
    assert measure("b", events).throughput is None
    # Only between its steps.
    events = [asked(), window(0.0, 4.0), step(1.0, 0.5), step(2.0, 0.5), pause("a", 1.0, 1.5), pause("b", 2.0, 2.5)]
    assert rate(events).value == pytest.approx(16 / 0.5)


def test_a_pause_outside_of_the_window_changes_nothing() -> None:
    events = [step(1.0, 1.0), step(2.0, 1.0)]
    found = rate([*complete_window(), *events, pause("validation", 0.0, 0.9), pause("validation", 3.1, 9.0)])
    assert (found.value, found.pauses) == (pytest.approx(8.0), {})


def test_ranks_have_the_items_of_all_over_the_longest_wall() -> None:
    slow = [step(1.0 + k, 1.0, rank=1) for k in range(4)]
    fast = [step(1.0 + 0.9 * k, 0.9, rank=0) for k in range(4)]
    assert rate([*complete_window(), *slow, *fast]).value == pytest.approx(64 / 4.0)


def test_ranks_that_did_not_measure_together_are_a_doubt() -> None:
    early, late = [step(1.0 + k, 1.0, rank=0) for k in range(10)], [step(6.0 + k, 1.0, rank=1) for k in range(10)]
    assert "overlap" in rate([*complete_window(), *early, *late]).doubts


@pytest.mark.parametrize(
    ("why", "steps", "seconds", "is_short"),
    [
        ("complete", 60, 6.0, False),
        ("complete", 61, 6.0, True),
        ("complete", 60, 6.1, True),
        ("ended", 60, 6.0, True),
        ("", 1, 0.0, True),
    ],
)
def test_a_window_is_short_until_it_holds_what_was_asked_for(
    why: str, steps: int, seconds: float, is_short: bool
) -> None:
    events = [step(1.0 + 0.1 * k, 0.1) for k in range(60)]
    doubts = rate([asked(steps, seconds), window(1.0, 7.0, why), *events]).doubts
    assert ("short" in doubts) == is_short


def test_no_window_at_all_is_short() -> None:
    assert rate([asked(), *[step(1.0 + k, 1.0) for k in range(100)]]).doubts == ("short",)


def test_where_nothing_says_what_was_asked_for_the_default_profile_holds() -> None:
    events = [step(1.0 + 0.4 * k, 0.4) for k in range(100)]
    assert rate([window(1.0, 41.0), *events]).doubts == ()
    assert rate([window(1.0, 21.0), *events]).doubts == ("short",)


def test_a_frozen_step_is_a_stall_and_has_its_place_in_the_window() -> None:
    events = [step(1.0 + 0.5 * k + (8.0 if k > 30 else 0.0), 8.5 if k == 30 else 0.5) for k in range(60)]
    found = rate([*complete_window(), *events])
    assert found.profile is not None
    assert found.profile.stalls == (pytest.approx(8.0 / 38.0),)
    assert found.stall == LongestStall(step=31, seconds=pytest.approx(8.0))


@pytest.mark.slow
def test_a_stall_among_very_many_steps_is_found_and_has_its_place() -> None:
    frozen = 25_000
    events = [
        step(1.0 + 0.001 * k + (5.0 if k > frozen else 0.0), 5.001 if k == frozen else 0.001) for k in range(50_000)
    ]
    found = rate([*complete_window(), *events])
    assert found.profile is not None
    assert found.profile.stalls == (pytest.approx(5.0 / 55.0),)
    assert found.stall is not None
    # Of so many steps five are one cycle.
    assert found.stall.step == pytest.approx(frozen, abs=5) and found.stall.seconds == pytest.approx(5.0)


def test_a_rhythm_is_measured_in_whole_periods() -> None:
    """A checkpoint of 2 s at each tenth step: from the first to the last of them 40 steps of 0.1 s and four checkpoints."""
    now, events = 1.0, []
    for index in range(48):
        lasted = 2.1 if index % 10 == 5 else 0.1
        events.append(step(now, lasted))
        now += lasted
    found = rate([*complete_window(), *events])
    assert found.value == pytest.approx(8 * 40 / (40 * 0.1 + 4 * 2.0))
    assert found.period == 10
    assert found.doubts == ()
    short = rate([asked(steps=60), window(0.0, 60.0), *events])
    assert short.value == pytest.approx(8 * 48 / (48 * 0.1 + 5 * 2.0))
    assert (short.period, short.doubts) == (None, ("short",))


def test_a_window_that_begins_with_a_gap_is_cut_to_whole_periods_too() -> None:
    """Warm-up is an epoch; then six epochs of ten steps in a second, with 0.6 s before each: 80 items in 1.6 s."""
    warm_up = [step(1 + index / 10, 0.1, warmup=True) for index in range(10)]
    steps = [step(2 + 1.6 * (index // 10) + 0.6 + index % 10 / 10, 0.1) for index in range(60)]
    found = rate([asked(), window(2.0, 11.6), *warm_up, *steps])
    assert (found.value, found.period) == (pytest.approx(50.0), 10)


def test_of_steps_that_were_recorded_together_no_quantile_is_known() -> None:
    apart = [step(0.1 * k, 0.1) for k in range(100)]
    assert rate([window(0.0, 10.0), *apart]).latency["p50"] == pytest.approx(0.1)
    together = [step(10.0 + 0.4 * k, 0.4, n=32, steps=4) for k in range(100)]
    assert rate([window(0.0, 50.0), *apart, *together]).latency == {}


def test_the_steps_that_were_warm_up_are_counted() -> None:
    warm = [step(1.0 + 0.2 * k, 0.2, warmup=True) for k in range(10)]
    left = [step(3.0 + 0.2 * k, 0.2) for k in range(10)]
    rest = [step(5.0 + 0.1 * k, 0.1) for k in range(90)]
    found = rate([asked(), window(3.0, 14.0), *warm, *left, *rest])
    assert (found.warm_up_steps, found.all_steps) == (20, 110)
    assert found.value == pytest.approx(80)


def test_steps_of_fewer_items_at_first_are_no_warm_up() -> None:
    """Slower items because the batches are smaller: that is ordinary work."""
    small = [step(3.0 + 0.1 * k, 0.1, n=4) for k in range(15)]
    large = [step(4.5 + 0.1 * k, 0.1, n=8) for k in range(95)]
    found = rate([asked(), window(3.0, 14.0), *small, *large])
    assert found.left_out == 0
    assert found.value == pytest.approx((15 * 4 + 95 * 8) / 11)


@pytest.mark.parametrize(
    "bad", [{"elapsed": -1.0}, {"elapsed": 0.0}, {"elapsed": None}, {"n": None, "nonfinite": ["n"]}, {"elapsed": "1"}]
)
def test_an_observation_that_is_no_number_is_refused_and_told(bad: dict[str, Any]) -> None:
    events = [step(1.0 + k, 1.0) for k in range(9)]
    measured = measure("b", [*complete_window(), *events, step(10.0, 1.0, **bad)])
    assert measured.throughput is not None
    assert measured.throughput.value == pytest.approx(8)
    assert measured.throughput.doubts == ("nonfinite",)
    assert measured.metric("nonfinite") == pytest.approx(0.1)


def test_nothing_but_no_numbers_is_a_failure_without_a_number(tmp_path: Path) -> None:
    events = tuple(step(1.0 + k, 1.0, rate=None, n=None, nonfinite=["rate", "n"]) for k in range(20))
    (bench,) = summarise(record(tmp_path, Recorded(events=events))).benchmarks
    assert (bench.outcome, bench.perf, bench.validity) == ("failed", None, None)
    assert [(failure.why, failure.detail) for failure in bench.failures] == [
        ("invalid", "none of its 20 observations is a number")
    ]


def test_compact_records_come_to_the_same_as_general_ones(tmp_path: Path) -> None:
    events = [*epochs(12, 10, gap_s=0.05), pause("validation", 1.5, 1.7), pause("validation", 2.01, 2.04)]
    path = tmp_path / "b.data"
    lines = [
        {"event": "data", "data": event.data, "pipe": "data", "t": 1.0} for event in events if isinstance(event, Data)
    ]
    for line in lines:
        line["data"] = {"time": 1.0, "clock": "host", "batch_id": 0, **line["data"]}  # type: ignore[dict-item]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    batched: Measurement = measure("b", [*complete_window(), *read_batches(path, "b")])
    single = rate([*complete_window(), *events])
    assert batched.throughput is not None
    assert batched.throughput.value == pytest.approx(single.value, rel=1e-12)
    assert batched.throughput.pauses == {"validation": pytest.approx(single.pauses["validation"])}
    wall_s = (12 * 1.0 + 11 * 0.05) - 0.2 - 0.03
    assert single.value == pytest.approx(960 / wall_s)
    assert math.isclose(single.totals[0].step_seconds, 12.0 - 0.2, rel_tol=1e-9)


def loader_launch(seed: int, epoch: int, *, is_known: bool = True, frozen_at: int = -1) -> Throughput:
    """700 steps of 50 ms in epochs; each end takes a validation of 0.3 to 1.5 s, and workers that start in 0.1 to 0.3 s."""
    chance, now, events = random.Random(seed), 0.0, []
    for index in range(700):
        lasted_s = 0.05 * chance.gauss(1, 0.02) + (3.0 if index == frozen_at else 0.0)
        if index and (index + 37) % epoch == 0:
            now += chance.uniform(0.3, 1.5)
            lasted_s += chance.uniform(0.1, 0.3)
        is_end = is_known and (index + 38) % epoch == 0
        events.append(step(now, lasted_s, **({"epoch_end": True} if is_end else {})))
        now += lasted_s
    return rate([asked(steps=60), window(0.0, now), *events])


@pytest.mark.parametrize("epoch", [100, 300, 500])
@pytest.mark.parametrize("seed", range(3))
def test_known_ends_of_epochs_are_a_rhythm_however_unlike_and_few_they_are(epoch: int, seed: int) -> None:
    found = loader_launch(seed, epoch)
    assert found.profile is not None
    assert (found.profile.stalled, found.profile.slowed, found.effects["gaps"]) == (0, 0, 0)
    other = loader_launch(seed, epoch, is_known=False)
    assert other.profile is not None
    assert max(other.profile.stalled, other.effects["gaps"]) > 0.01


def test_a_freeze_between_known_ends_of_epochs_is_a_stall() -> None:
    found = loader_launch(1, 100, frozen_at=333)
    assert found.profile is not None
    assert found.profile.stalled == pytest.approx(3.0 / 43, rel=0.2)
    assert found.period == 100


def test_one_end_of_an_epoch_that_holds_much_of_a_window_leaves_its_share_uncertain() -> None:
    """Whether the window holds one such end or none is chance: 2 s of 12."""
    events = epochs(2, 50, gap_s=2.0)
    found = rate([asked(steps=60), window(0.0, 13.0), *events])
    assert found.effects["gaps"] == pytest.approx(-math.log1p(-2 / 12), rel=1e-6)


def test_a_long_step_where_epochs_of_a_few_steps_end_is_a_stall() -> None:
    """A loop that is called again and again has an end every few steps, of which nearly all take no time."""
    events, now = [], 0.0
    for index in range(600):
        lasted_s = 0.05 + (3.0 if index in (100, 350) else 0.0)
        events.append(step(now, lasted_s, **({"epoch_end": True} if index % 5 == 4 else {})))
        now += lasted_s
    found = rate([asked(steps=60), window(0.0, now), *events])
    assert found.profile is not None
    assert found.profile.stalled == pytest.approx(-math.log1p(-6 / 36), rel=0.01)
