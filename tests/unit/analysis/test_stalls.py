"""Stalls: found when they matter, told from noise, from large batches and from a rhythm."""

from __future__ import annotations

import random

import pytest

from milabench.analysis.stalls import stalls


def steps(n: int = 60, sd: float = 0.02, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [0.5 * (1 + sd * rng.gauss(0, 1)) for _ in range(n)]


def test_a_freeze_of_three_seconds_in_a_window_of_thirty_is_a_stall_at_its_step() -> None:
    seconds = steps()
    seconds[17] += 3.0
    result = stalls(seconds)
    assert [(event.start, event.stop) for event in result.events] == [(17, 18)]
    assert result.events[0].excess == pytest.approx(3.0, abs=0.1)


def test_neighbouring_long_steps_are_one_stall() -> None:
    seconds = steps()
    seconds[40:46] = [value * 1.4 for value in seconds[40:46]]
    result = stalls(seconds)
    assert [(event.start, event.stop) for event in result.events] == [(40, 46)]


@pytest.mark.parametrize("sd", [0.0, 0.001, 0.05, 0.3])
def test_noise_has_no_stall(sd: float) -> None:
    assert not any(stalls(steps(n=300, sd=sd, seed=seed)).events for seed in range(100))


def test_a_checkpoint_every_ten_steps_is_a_rhythm_of_whole_periods() -> None:
    seconds = steps(n=65)
    for index in range(4, 65, 10):
        seconds[index] += 2.0
    result = stalls(seconds)
    assert result.events == ()
    assert result.rhythm is not None
    assert (result.rhythm.period, result.rhythm.whole_periods()) == (10, (4, 64))


@pytest.mark.parametrize("step", [34, 37])
@pytest.mark.parametrize("freeze", [3.0, 0.7])
def test_a_freeze_amid_a_rhythm_is_a_stall(freeze: float, step: int) -> None:
    seconds = steps(n=65)
    for index in range(4, 65, 10):
        seconds[index] += 0.5
    seconds[step] += freeze
    assert stalls(seconds).events


def test_short_stalls_beside_a_rhythm_do_not_hide_it() -> None:
    seconds = steps(n=65)
    for index in range(4, 65, 10):
        seconds[index] += 2.0
    seconds[7] += 0.15
    result = stalls(seconds)
    assert result.rhythm is not None
    assert [event.start for event in result.events] == [7]


def test_a_rhythm_of_short_steps_needs_no_whole_periods() -> None:
    seconds = [value * (2 if index % 4 == 0 else 1) for index, value in enumerate(steps(n=2000))]
    result = stalls(seconds)
    assert result.events == ()
    assert result.rhythm is not None
    assert (result.rhythm.period, result.rhythm.whole_periods()) == (4, None)


def test_two_long_steps_are_no_rhythm() -> None:
    seconds = steps()
    seconds[10] += 1.0
    seconds[40] += 1.0
    assert (len(stalls(seconds).events), stalls(seconds).rhythm) == (2, None)


def test_a_large_batch_is_no_stall_and_a_freeze_in_one_is() -> None:
    items = [16.0 if index == 20 else 1.0 for index in range(60)]
    seconds = [value * n for value, n in zip(steps(), items, strict=True)]
    assert stalls(seconds).events  # as far as durations alone can say
    assert not stalls(seconds, items).events
    seconds[20] += 20.0
    assert stalls(seconds, items).events


@pytest.mark.parametrize("seconds", [[], [1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
def test_nothing_is_made_of_nothing(seconds: list[float]) -> None:
    assert stalls(seconds).events == ()
    assert not stalls(seconds).events
