"""Warm-up is found, noise is not taken for it; fixed seeds, so the shares below are known answers."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from milabench.analysis.energy_per_item import energies, joules_per_item
from milabench.analysis.measure import measure
from milabench.analysis.steady_state import settled_at
from milabench.analysis.summary import summarise
from milabench.analysis.summary_io import summary_from_json
from milabench.events.model import Data
from tests.recorded_run import Recorded, complete_window, record

TRIALS = 200


def flat(chance: random.Random, n: int = 100, sd: float = 0.02) -> list[float]:
    return [0.01 * (1 + sd * chance.gauss(0, 1)) for _ in range(n)]


def stepped(chance: random.Random, at: int = 10, height_sd: float = 5.0, n: int = 100, sd: float = 0.02) -> list[float]:
    return [value + (0.01 * sd * height_sd if place < at else 0) for place, value in enumerate(flat(chance, n, sd))]


@pytest.mark.parametrize("sd", [0.01, 0.05, 0.2])
def test_a_step_of_five_deviations_at_sample_10_of_100_is_found(sd: float) -> None:
    chance = random.Random(10)
    settled = [settled_at(stepped(chance, sd=sd)) for _ in range(TRIALS)]
    assert sum(abs(at - 10) <= 2 for at in settled) >= 0.9 * TRIALS


NOISE: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda chance: chance.gauss(10, 0.2),
    "long tail": lambda chance: 10 + chance.expovariate(2),
    "outliers": lambda chance: chance.gauss(10, 0.1) + (50 if chance.random() < 0.05 else 0),
    "two levels": lambda chance: chance.gauss(12 if chance.random() < 0.3 else 10, 0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("noise", sorted(NOISE))
@pytest.mark.parametrize("n", [20, 60, 100, 300])
def test_flat_noise_is_steady_in_95_of_100_cases(noise: str, n: int) -> None:
    chance = random.Random(11)
    judged = [settled_at([NOISE[noise](chance) for _ in range(n)]) for _ in range(TRIALS)]
    assert sum(one == 0 for one in judged) >= 0.95 * TRIALS


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.3, 0.6])
def test_neighbours_that_resemble_each_other_are_mostly_not_taken_for_a_change(correlation: float) -> None:
    chance = random.Random(12)

    def series() -> list[float]:
        shocks = [chance.gauss(0, 0.2) for _ in range(100)]
        return [10 + value for value in accumulate(shocks, lambda last, shock: correlation * last + shock)]

    judged = [settled_at(series()) for _ in range(TRIALS)]
    assert sum(one == 0 for one in judged) >= 0.85 * TRIALS


def test_a_warm_up_of_several_levels_is_left_out_up_to_the_last() -> None:
    chance = random.Random(13)
    values = [value * (2 if place < 5 else 1.4 if place < 11 else 1) for place, value in enumerate(flat(chance))]
    judged = settled_at(values)
    assert abs(judged - 11) <= 2


def test_more_than_a_fifth_of_a_window_is_never_called_warm_up() -> None:
    """Slow steps hold 45 % of the window, or a speed swings once through it, and is slow at first."""
    chance = random.Random(23)
    halves = [value * (1.5 if place < 135 else 1) for place, value in enumerate(flat(chance, 300))]
    swings = [value * (1 + 0.15 * math.sin(math.tau * place / 300)) for place, value in enumerate(flat(chance, 300))]
    assert settled_at(halves) == 0
    assert settled_at(swings) == 0
    for share in (0.3, 0.4, 0.5, 0.6):
        for slower in (1.1, 1.3, 2):
            judged = settled_at(
                [value * (slower if place < 300 * share else 1) for place, value in enumerate(flat(chance, 300))]
            )
            assert judged == 0


def test_a_change_in_the_second_half_is_no_end_of_a_warm_up() -> None:
    assert settled_at(stepped(random.Random(14), at=70)) == 0


def test_slow_steps_at_regular_places_are_part_of_a_steady_state() -> None:
    values = [value * (2 if place % 10 == 0 else 1) for place, value in enumerate(flat(random.Random(17)))]
    assert settled_at(values) == 0


def epochs(chance: random.Random, step: float, last_step: float, n: int) -> list[float]:
    """Steps of n epochs of 25; the last of each holds what its end costs."""
    lengths = [step] * 24 + [last_step]
    return [length * (1 + 0.02 * chance.gauss(0, 1)) for _ in range(n) for length in lengths]


def test_where_the_ends_of_epochs_hold_the_time_the_steps_between_them_do_not_decide() -> None:
    chance = random.Random(23)
    judged = settled_at([*epochs(chance, 1.05, 200, 20), *epochs(chance, 1, 200, 40)])
    assert judged == 0


def test_epochs_whose_ends_were_longer_at_first_are_a_warm_up_of_whole_epochs() -> None:
    chance = random.Random(22)
    judged = settled_at([*epochs(chance, 1, 150, 15), *epochs(chance, 1, 100, 105)])
    assert judged == 15 * 25 + 24


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 50, [1.0, 2.0] * 4, [0.0] * 30])
def test_what_cannot_be_judged_has_no_warm_up(values: list[float]) -> None:
    assert settled_at(values) == 0


def test_a_long_series_is_judged_in_blocks() -> None:
    chance = random.Random(18)
    judged = settled_at(stepped(chance, at=15_000, height_sd=5, n=100_000))
    assert abs(judged - 15_000) <= 100


# In a measurement


def steps(durations: list[float], *, gap_at: int | None = None, ends_epoch: bool = True, clock: float = 1.0):
    """Observations of 8 items each; `gap_at` is followed by half a second in which nothing is observed."""
    t_ns, events = 10**9, []
    for place, seconds in enumerate(durations):
        host_ns = round(seconds * 1e9)
        data = {
            "task": "train",
            "units": "items/s",
            "n": 8,
            "elapsed": seconds * clock,
            "rate": 8 / (seconds * clock),
            "t0_ns": t_ns,
            "host_ns": host_ns,
            "time": t_ns / 1e9,
        }
        t_ns += host_ns
        if place == gap_at:
            t_ns += 500_000_000
            data |= {"epoch_end": True} if ends_epoch else {}
        events.append(Data(step="b", t=t_ns / 1e9, data=data))
    return events


def rate(events: list[Data]):
    throughput = measure("b", [*complete_window(), *events]).throughput
    assert throughput is not None
    return throughput


def test_what_is_left_of_the_warm_up_is_not_in_the_number() -> None:
    found = rate(steps(stepped(random.Random(1), at=10, height_sd=50)))
    assert found.warmup_left == 10
    assert found.value == pytest.approx(800, rel=0.01)
    assert found.observations == 90
    assert found.left_out_share == pytest.approx(0.1)
    assert found.doubts == ()


def test_a_window_that_slows_down_keeps_its_number_and_shows_by_how_much() -> None:
    values = stepped(random.Random(2), at=50, height_sd=50)
    found = rate(steps(values))
    assert found.value == pytest.approx(800 / math.fsum(values))
    assert found.profile is not None
    # 50 of 100 steps take twice as long.
    assert found.profile.slowed == pytest.approx(math.log(1.5), rel=0.05)


def test_a_gap_between_epochs_is_in_the_number_and_named() -> None:
    values = flat(random.Random(3))
    gapped = rate(steps(values, gap_at=50))
    assert gapped.value == pytest.approx(800 / (math.fsum(values) + 0.5))
    assert gapped.steps_rate == pytest.approx(800 / math.fsum(values))
    assert gapped.doubts == ()
    # One end of an epoch in a window: by its whole share.
    assert gapped.effects["gaps"] == pytest.approx(math.log1p(0.5 / math.fsum(values)), rel=0.01)


def test_a_device_may_fill_the_gap_between_epochs_with_what_the_host_has_queued() -> None:
    values = flat(random.Random(3))
    queued = steps(values, gap_at=50, clock=1 + 0.4 / math.fsum(values))
    assert "clocks-disagree" not in rate(queued).doubts


def test_a_device_that_tells_another_time_than_the_host_is_suspect() -> None:
    values = flat(random.Random(4))
    assert rate(steps(values, clock=0.999)).doubts == ()
    assert rate(steps(values, clock=0.98)).doubts == ("clocks-disagree",)


def test_energy_for_an_item_counts_the_items_that_were_warm_up_still(tmp_path: Path) -> None:
    """100 steps of 8 items at 100 W, the first 10 of them twice as slow: 110 J, for 800 items and not for the 720 that count."""
    values = stepped(random.Random(1), at=10, height_sd=50)
    seconds = math.fsum(values)
    energy = Data(step="b", t=1.0, data={"metric": "energy", "value": 100 * seconds, "units": "J"})
    (bench,) = summarise(record(tmp_path, Recorded(events=(*steps(values), energy)))).benchmarks
    (process,) = bench.processes
    assert (process.throughput.observations, process.throughput.left_out) == (90, 80.0)
    assert joules_per_item(process, energies(bench)) == pytest.approx(100 * seconds / 800)
    assert 100 * seconds / 800 == pytest.approx(0.1375, rel=0.01)
    (again,) = summary_from_json(json.loads(json.dumps({"schema": 1, "benchmarks": [bench.to_json()]}))).benchmarks
    assert again.processes == bench.processes


def test_a_process_that_never_left_its_warm_up_has_no_energy_for_an_item(tmp_path: Path) -> None:
    events = [replace(one, data={**one.data, "warmup": True}) for one in steps(flat(random.Random(3)))]
    energy = Data(step="b", t=1.0, data={"metric": "energy", "value": 1000.0, "units": "J"})
    (bench,) = summarise(record(tmp_path, Recorded(events=(*events, energy)))).benchmarks
    assert bench.doubts == ("short",)
    assert joules_per_item(bench.processes[0], energies(bench)) is None


def told(events: list[Data]) -> dict[str, float]:
    return {metric.name: metric.value for metric in measure("b", [*complete_window(), *events]).metrics}


def test_the_length_of_the_warm_up_is_told_what_was_marked_and_what_was_found() -> None:
    values = stepped(random.Random(1), at=10, height_sd=50)
    events = steps([0.5, *values])
    events[0] = replace(events[0], data={**events[0].data, "warmup": True})
    assert told(events)["warm_up"] == pytest.approx(0.5 + math.fsum(values[:10]), rel=1e-6)
    assert "warm_up" not in told(steps(flat(random.Random(3))))


def test_what_lies_between_epochs_has_its_share() -> None:
    values = flat(random.Random(3))
    found = told(steps(values, gap_at=50))
    assert found["between_epochs"] == pytest.approx(0.5 / (0.5 + math.fsum(values)), rel=1e-6)
    assert found["steps_rate"] == pytest.approx(800 / math.fsum(values))
    assert "between_epochs" not in told(steps(values))
