"""The uncertainty of a number: its components by hand, and a small part of what `tests/perf/verdicts.py` simulates."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from milabench.acceptance.bounds import BoundTarget, decide_bound
from milabench.analysis.comparison_model import log_level
from milabench.analysis.stalls import stalls
from milabench.analysis.uncertainty import (
    Allowance,
    MeasuredLaunch,
    Uncertainty,
    WindowProfile,
    uncertainty_of,
    widening,
    window_profile,
)
from tests.perf.verdicts import Cell, coverage_of, stopped, verdicts_of

CALM = WindowProfile(stretches=(0.0,) * 20)


def sizes(found: Uncertainty) -> dict[str, float | None]:
    return {component.name: component.size for component in found.components}


def test_the_worked_example_of_the_page_is_what_the_code_computes() -> None:
    """docs/explanation/what-valid-means.md: 1000, 990 and 1010 items/s, and a step that took 6 % of the last window."""
    frozen = WindowProfile(stretches=CALM.stretches, stalls=(0.06,))
    launches = [
        MeasuredLaunch(rate=math.log(rate), profiles=(profile,))
        for rate, profile in ((1000, CALM), (990, CALM), (1010, frozen))
    ]
    found = uncertainty_of(1000.0, launches)
    assert (found.low, found.high) == (pytest.approx(975, abs=1), pytest.approx(1047, abs=1))
    assert found.expanded == pytest.approx(0.036, abs=0.0005)
    assert sizes(found)["launches"] == pytest.approx(0.025, abs=0.0005)
    assert sizes(found)["stalls"] == pytest.approx(0.0208, abs=0.0005)


@pytest.mark.parametrize("count", [1, 2])
def test_below_three_launches_nothing_is_known(count: int) -> None:
    found = uncertainty_of(100.0, [MeasuredLaunch(rate=1.0, profiles=(CALM,))] * count)
    assert (found.expanded, found.low, found.high, found.half_width) == (None, None, None, "± ?")
    assert sizes(found) == {"launches": None}


def test_launches_that_agree_exactly_may_still_have_missed_a_mode() -> None:
    found = uncertainty_of(100.0, [MeasuredLaunch(rate=1.0)] * 3)
    assert found.expanded == pytest.approx(0.011, abs=1e-4)
    assert found.components[0].name == "unseen modes"


def test_what_others_took_reaches_upwards_and_of_seconds_downwards() -> None:
    launches = [MeasuredLaunch(rate=math.log(100.0), effects={"others": 0.2})] * 3
    rate = uncertainty_of(100.0, launches)
    seconds = uncertainty_of(100.0, launches, is_lower_better=True)
    assert rate.high is not None and rate.low is not None and rate.high > 125 and rate.low > 98
    assert seconds.high is not None and seconds.low is not None and seconds.low < 80 and seconds.high < 102
    assert rate.components[0].name == "others"


def test_lower_clocks_are_bounds_that_add_to_what_others_took() -> None:
    lowered = {"others": 0.02, "throttling": 0.1, "power limit": 0.04}
    found = uncertainty_of(100.0, [MeasuredLaunch(rate=math.log(100.0), effects=lowered)] * 3)
    assert sizes(found) | {"unseen modes": None} == {
        "throttling": pytest.approx(1 / 0.9 - 1),
        "power limit": pytest.approx(1 / 0.96 - 1),
        "others": pytest.approx(1 / 0.98 - 1),
        "launches": 0.0,
        "unseen modes": None,
    }
    assert found.components[0].name == "throttling" and found.low is not None and found.low > 98.8
    assert found.high is not None and found.high >= 100 / (0.9 * 0.96 * 0.98)


RISING = WindowProfile(stretches=tuple(0.01 * index for index in range(20)))
LASTING: Mapping[str, tuple[Sequence[MeasuredLaunch], float]] = {
    "a stall in all": ([MeasuredLaunch(rate=0.0, profiles=(replace(CALM, stalls=(0.2,)),))] * 3, 1.05 * math.log(1.25)),
    "a drift in all": ([MeasuredLaunch(rate=0.0, profiles=(RISING,))] * 3, 1.05 * 0.1),
    **{
        f"{name} in all": ([MeasuredLaunch(rate=0.0, effects={name: 0.2})] * 3, size)
        for name, size in (
            ("gaps", 1.05 * 0.2),
            ("throttling", 1.05 * math.log(1.25)),
            ("power limit", 1.05 * math.log(1.25)),
            ("observing", 0.2),
            ("others", 0.0),
        )
    },
    "a stall in one": (
        [MeasuredLaunch(rate=0.0, profiles=(replace(CALM, stalls=stalled),)) for stalled in ((0.2,), (), ())],
        0.0,
    ),
    **{
        f"{name} in one": ([MeasuredLaunch(rate=0.0, effects={name: at}) for at in (0.0, 0.3, 0.0)], 0.0)
        for name in ("gaps", "throttling", "power limit")
    },
    "a drift in one": ([MeasuredLaunch(rate=0.0, profiles=(each,)) for each in (RISING, CALM, CALM)], 0.0),
    "repeats in order": ([MeasuredLaunch(rate=0.1 * index) for index in range(6)], 0.0),
}


@pytest.mark.parametrize("name", LASTING)
def test_what_more_repeats_do_not_lower_is_what_all_of_them_show(name: str) -> None:
    launches, up = LASTING[name]
    down = 0.1 if name == "a drift in all" else 0.0  # what slows down may have been as fast as it began
    rate, seconds = (uncertainty_of(1.0, launches, is_lower_better=is_lower) for is_lower in (False, True))
    assert (rate.lasting or 0.0) == pytest.approx((math.exp(up) - math.exp(-down)) / 2, rel=1e-9)
    assert (seconds.lasting or 0.0) == pytest.approx((math.exp(down) - math.exp(-up)) / 2, rel=1e-9)


def test_clocks_that_disagree_last_on_both_sides() -> None:
    launches = [MeasuredLaunch(rate=0.0, effects={"clocks": 0.1, "gaps": 0.2})] * 3
    assert uncertainty_of(1.0, launches).lasting == pytest.approx((math.exp(0.1 + 1.05 * 0.2) - math.exp(-0.1)) / 2)


@pytest.mark.parametrize("is_lower_better", [False, True])
def test_no_part_lasts_that_is_larger_than_the_whole(is_lower_better: bool) -> None:
    rng = random.Random(11)
    for _ in range(300):
        names = [
            name
            for name in ("others", "throttling", "power limit", "gaps", "observing", "clocks")
            if rng.random() < 0.4
        ]
        slope, stalled = rng.choice((0.0, rng.uniform(-0.02, 0.02))), rng.choice((0.0, 0.2))
        launches = [
            MeasuredLaunch(
                rate=rng.gauss(0, rng.choice((0.0, 0.05))),
                profiles=(
                    WindowProfile(
                        stretches=tuple(slope * index + rng.gauss(0, 0.01) for index in range(20)),
                        stalls=(rng.uniform(0, stalled),) if stalled else (),
                    ),
                ),
                effects={name: rng.uniform(0, 0.3) for name in names},
            )
            for _ in range(rng.randint(3, 8))
        ]
        found = uncertainty_of(1.0, launches, is_lower_better=is_lower_better)
        assert found.expanded is not None
        assert (found.lasting or 0.0) <= found.expanded * (1 + 1e-12)


def test_the_cause_is_what_more_repeats_do_not_lower_where_they_cannot_help() -> None:
    scattered = [MeasuredLaunch(rate=rate, effects={"gaps": 0.2, "others": 0.6}) for rate in (1.0, 1.3, 1.6)]
    found = uncertainty_of(100.0, scattered)
    assert [each.name for each in found.components[:3]] == ["others", "launches", "gaps"]
    assert (replace(found, asked=0.05).is_lasting, replace(found, asked=0.05).cause.name) == (True, "gaps")
    assert (replace(found, asked=0.2).is_lasting, replace(found, asked=0.2).cause.name) == (False, "others")
    assert not replace(found, asked=9.0).is_lasting and not replace(found, asked=None).is_lasting


def test_launches_that_rise_one_after_another_are_not_exchangeable() -> None:
    rising = [MeasuredLaunch(rate=0.01 * index) for index in range(6)]
    shuffled = [rising[index] for index in (3, 0, 5, 1, 4, 2)]
    assert sizes(uncertainty_of(100.0, rising))["order"] == pytest.approx(math.expm1(0.025))
    assert "order" not in sizes(uncertainty_of(100.0, shuffled))


def test_a_checkpoint_is_the_programs_and_a_freeze_is_not() -> None:
    seconds = [0.1 + (0.4 if index % 10 == 5 else 0.0) for index in range(200)]
    calm = window_profile(seconds, None, stalls(seconds))
    seconds[42] += 3.0
    frozen = window_profile(seconds, None, stalls(seconds))
    assert calm is not None and frozen is not None
    assert (calm.stalled, calm.slowed) == (0.0, pytest.approx(0.0, abs=1e-9))
    assert frozen.stalls == (pytest.approx(3.0 / sum(seconds)),)


def test_what_both_sides_of_a_ratio_show_cancels() -> None:
    slow, calm = Allowance(0.01, 0.11), Allowance(0.01, 0.01)
    both = math.hypot(0.01, 0.01)
    assert slow.over(slow) == pytest.approx((both, both))
    assert slow.over(calm) == pytest.approx((both, both + 0.1))
    assert calm.over(slow) == pytest.approx((both + 0.1, both))


@pytest.mark.parametrize(
    ("cell", "least"),
    [
        (Cell(3, 60, "normal", 0.01, 0, 0.5), 0.9),
        (Cell(3, 60, "normal", 0.005, 0, 0.5, "stalls", 1), 0.9),
        (Cell(3, 60, "normal", 0.005, 0, 0.5, "begins", 3), 0.9),
        (Cell(5, 60, "normal", 0.005, 0, 0.5, "load", 5), 0.85),
    ],
    ids=str,
)
def test_the_interval_holds_the_undisturbed_rate(cell: Cell, least: float) -> None:
    assert coverage_of(cell, 20, random.Random(3)).share >= least


def test_the_interval_of_what_was_measured_on_holds_it_too() -> None:
    rng = random.Random(5)
    for cell, most in ((Cell(3, 60, "normal", 0.003, 0, 0.5), 4), (Cell(3, 60, "normal", 0.15, 0, 0.5), 10)):
        share, launches, _ = stopped(cell, 20, rng)
        assert share >= 0.9 and most - 1 <= launches <= most


def test_verdicts_know_that_launches_stopped_when_they_were_precise() -> None:
    values = (100.0, 102.0, 104.0)
    assert widening(0.95, 3) == 1
    assert widening(0.975, 3) == pytest.approx(6.205 / 4.303, rel=1e-3)
    fixed, on = log_level([values], "higher"), log_level([values], "higher", confidence=0.975)
    assert fixed is not None and on is not None
    assert on.variance == pytest.approx(fixed.variance * widening(0.975, 3) ** 2)
    target = BoundTarget(value=90.0, is_minimum=True, confidence=0.95, to_fail=0.95)
    kept = [decide_bound(values, [], replace(target, of_launches=level)).bounds for level in (0.95, 0.975)]
    assert kept[0] is not None and kept[1] is not None
    assert kept[1][0] < kept[0][0] and kept[1][1] > kept[0][1]


@pytest.mark.parametrize("digits", [0, 2])
def test_equal_systems_of_two_modes_are_not_called_faster(digits: int) -> None:
    rng, cell = random.Random(4), Cell(3, 0, "two", 0.003, 0, 0)
    families = [verdicts_of(rng, cell, 1.0, digits, 10) for _ in range(12)]
    assert sum(any(word in ("FASTER", "SLOWER") for word in words) for words in families) <= 1
