"""Where a history changes: against published answers, against every possible segmentation, and on noise."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from milabench.history import changepoints
from milabench.history.changepoints import Segment, change_points, partition, segments, shown_changes

# Annual flow of the Nile at Aswan, 1871 to 1970 (Cobb 1978): its level fell after 1898, the 28th value.
NILE = [
    *(1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799, 958, 1140),
    *(1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020, 1050, 969),
    *(831, 726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845, 864, 862, 698, 845, 744, 796, 1040, 759),
    *(781, 865, 845, 944, 984, 897, 822, 1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890),
    *(744, 749, 838, 1050, 918, 986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740),
]


def test_the_nile_fell_after_1898() -> None:
    assert change_points(NILE) == [28]


def cost(values: list[float], bounds: tuple[int, ...], penalty: float) -> float:
    total = penalty * (len(bounds) - 2)
    for start, stop in itertools.pairwise(bounds):
        mean = math.fsum(values[start:stop]) / (stop - start)
        total += math.fsum((value - mean) ** 2 for value in values[start:stop])
    return total


@pytest.mark.parametrize("seed", range(8))
def test_no_other_segmentation_costs_less(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.gauss(4 * (place // 4 % 2), 1) for place in range(12)]
    penalty = 5.0
    every = [
        (0, *inner, 12)
        for count in range(4)
        for inner in itertools.combinations(range(3, 10), count)
        if all(stop - start >= 3 for start, stop in itertools.pairwise((0, *inner, 12)))
    ]
    best = min(every, key=lambda bounds: cost(values, bounds, penalty))
    assert partition(values, penalty) == list(best[1:-1])


def test_noise_has_a_change_in_at_most_five_per_cent_of_histories() -> None:
    rng = random.Random(7)
    for n in (6, 10, 20, 40):
        found = sum(bool(change_points([rng.gauss(0, 1) for _ in range(n)])) for _ in range(400))
        assert found <= 0.05 * 400 + 3 * math.sqrt(0.05 * 0.95 * 400), n


def test_a_step_of_five_standard_deviations_is_found_where_it_is() -> None:
    rng = random.Random(8)
    found = 0
    for _ in range(200):
        places = change_points([rng.gauss(5 * (place >= 10), 1) for place in range(20)])
        found += len(places) == 1 and abs(places[0] - 10) <= 1
    assert found >= 180


def test_levels_are_geometric_means_and_two_changes_are_two() -> None:
    values = [100.0, 101, 100, 99, 110, 111, 110, 109, 100, 101, 99, 100]
    assert [(one.start, one.stop) for one in segments(values)] == [(0, 4), (4, 8), (8, 12)]
    assert segments(values)[1].level == pytest.approx(math.exp(math.fsum(map(math.log, values[4:8])) / 4))


def test_one_slow_run_is_no_change() -> None:
    assert len(segments([100.0, 101, 100, 99, 60, 100, 101, 99, 100, 101])) == 1


def test_less_than_one_per_cent_is_no_change() -> None:
    assert len(segments([100.0] * 8 + [100.5] * 8)) == 1
    assert len(segments([100.0] * 8 + [102.0] * 8)) == 2


def test_few_runs_are_one_level_and_none_is_none() -> None:
    assert segments([100.0, 100, 100, 200, 200]) == (Segment(start=0, stop=5, level=pytest.approx(131.95, abs=0.01)),)
    assert segments([]) == ()


def test_the_noise_of_a_history_does_not_count_its_steps() -> None:
    rng = random.Random(9)
    values = [rng.gauss(20 * (place // 50), 1) for place in range(200)]
    assert changepoints.noise(values) == pytest.approx(1.0, abs=0.2)


def a_history(shape: str, rng: random.Random, n: int) -> list[float]:
    """A history without a change, whose noise is not normal and independent; about 1 % of the level."""
    state, values = 0.0, list[float]()
    for _ in range(n + 20):
        state = 0.5 * state + 0.87 * rng.gauss(0, 1)
        by_shape = {
            "skewed": math.exp(rng.gauss(0, 1)),
            "dependent": state,
            "two modes": 3.0 * (rng.random() < 0.5) + 0.2 * rng.gauss(0, 1),
            "two digits": round(1.2 * rng.gauss(0, 1)),
        }
        values.append(100 * math.exp(0.01 * by_shape[shape]))
    return values[20:]


@pytest.mark.parametrize("shape", ["skewed", "dependent", "two modes", "two digits"])
def test_what_other_noise_brings_is_a_change_perhaps(shape: str) -> None:
    rng = random.Random(38)
    changed = shown = 0
    for _ in range(25):
        values = a_history(shape, rng, 24)
        parts = segments(values)
        changed += len(parts) > 1
        shown += any(shown_changes(values, parts))
    assert shown <= 4, f"{changed} histories with changes"  # 5 %, 8 % of dependent noise


@pytest.mark.parametrize("shape", ["skewed", "two modes", "two digits"])
def test_a_step_beyond_the_noise_is_shown_whatever_the_noise_is(shape: str) -> None:
    rng = random.Random(39)
    values = [value * (1.12 if index >= 12 else 1) for index, value in enumerate(a_history(shape, rng, 24))]
    parts = segments(values)
    assert any(part.start == 12 for part in parts)
    assert any(shown_changes(values, parts))


def test_a_level_that_comes_and_goes_is_shown() -> None:
    rng = random.Random(40)
    values = [100 * math.exp(0.01 * rng.gauss(0, 1) + 0.06 * (12 <= index < 24)) for index in range(36)]
    parts = segments(values)
    assert ([part.start for part in parts], shown_changes(values, parts)) == ([0, 12, 24], (True, True))
    assert shown_changes([1.0] * 6, segments([1.0] * 6)) == ()
    assert shown_changes([1.0] * 6 + [2.0] * 6, segments([1.0] * 6 + [2.0] * 6)) == (True,)
