"""The uncertainty of a number: its components by hand, and a small part of what `tests/perf/verdicts.py` simulates."""

from __future__ import annotations

import math
import random
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
    launches = [MeasuredLaunch(rate=math.log(100.0))] * 3
    rate = uncertainty_of(100.0, launches, {"others": 0.2})
    seconds = uncertainty_of(100.0, launches, {"others": 0.2}, is_lower_better=True)
    assert rate.high is not None and rate.low is not None and rate.high > 125 and rate.low > 98
    assert seconds.high is not None and seconds.low is not None and seconds.low < 80 and seconds.high < 102
    assert rate.components[0].name == "others"


def test_lower_clocks_are_bounds_that_add_to_what_others_took() -> None:
    launches = [MeasuredLaunch(rate=math.log(100.0))] * 3
    found = uncertainty_of(100.0, launches, {"others": 0.02, "throttling": 0.1, "power limit": 0.04})
    assert sizes(found) | {"unseen modes": None} == {
        "throttling": pytest.approx(1 / 0.9 - 1),
        "power limit": pytest.approx(1 / 0.96 - 1),
        "others": pytest.approx(1 / 0.98 - 1),
        "launches": 0.0,
        "unseen modes": None,
    }
    assert found.components[0].name == "throttling" and found.low is not None and found.low > 98.8
    assert found.high is not None and found.high >= 100 / (0.9 * 0.96 * 0.98)


def test_what_more_repeats_do_not_lower_is_what_all_show() -> None:
    def found(*lost: float) -> Uncertainty:
        frozen = [replace(CALM, stalls=(share,) if share else ()) for share in lost]
        launches = [MeasuredLaunch(rate=math.log1p(-share), profiles=(frozen[at],)) for at, share in enumerate(lost)]
        return replace(uncertainty_of(1.0, launches), asked=0.05)

    once, always = found(0.3, 0.0, 0.0), found(0.2, 0.18, 0.22)
    assert (once.is_enough, once.is_lasting, once.cause.name) == (False, False, "stalls")
    assert (always.is_enough, always.is_lasting, always.cause.name) == (False, True, "stalls")
    assert once.lasting is None and always.lasting == pytest.approx(1.05 * -math.log(0.8) / 2, rel=0.1)
    scattered = uncertainty_of(100.0, [MeasuredLaunch(rate=each) for each in (1.0, 1.3, 1.6)], {"gaps": 0.2})
    assert replace(scattered, asked=0.05).cause.name == "gaps"
    assert replace(scattered, asked=0.2).cause.name == "launches"


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
